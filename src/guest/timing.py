# How long code takes: %time, %%time, %timeit. `guest` is the interpreter.

import os
import re

timers = []


def start_timer():
    import time

    timers.append((time.perf_counter(), os.times()))


def timed(value):
    import time

    wall = time.perf_counter()
    now = os.times()
    start, before = timers.pop()
    user, system_time = now.user - before.user, now.system - before.system
    if user + system_time >= 0.01:
        print("CPU times: user %s, sys: %s, total: %s" % (span(user), span(system_time), span(user + system_time)))
    print("Wall time: %s" % span(wall - start))
    return value


def span(seconds):
    if seconds >= 60:
        return "%dmin %ds" % divmod(seconds, 60)
    for unit, size in ("s", 1), ("ms", 1e-3), ("us", 1e-6):
        if seconds >= size:
            break
    else:
        unit, size = "ns", 1e-9
    return "%.3g %s" % (seconds / size, unit)


def split_timeit(line):
    match = re.match(r"\s*((?:-[nrpt]\s*\S+\s*|-[qoctp]\s+)*)(.*)", line, re.S)
    return match[1], match[2]


def time_it(line, setup, frame):
    import statistics
    import timeit

    options, code = split_timeit(line)
    given = dict(re.findall(r"-([nr])\s*(\d+)", options))
    names = guest.namespace if frame.f_locals is frame.f_globals else {**frame.f_globals, **frame.f_locals}
    timer = timeit.Timer(code, setup, globals=names)
    loops = int(given["n"]) if "n" in given else timer.autorange()[0]
    runs = [time / loops for time in timer.repeat(int(given.get("r", 7)), loops)]
    spread = statistics.pstdev(runs)
    print(
        "%s ± %s per loop (mean ± std. dev. of %d run%s, %s loop%s each)"
        % (span(sum(runs) / len(runs)), span(spread), len(runs), "s" * (len(runs) != 1), format(loops, ","), "s" * (loops != 1))
    )
