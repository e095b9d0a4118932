"""Prints what the guest costs: start to hello and to the first result over `python3 -c pass`, latency, throughput.

    GUEST_PYTHON=python3.14 python3 src/guest/tests/measure.py [rounds]
"""

import statistics
import subprocess
import sys
import time

from guest_client import PYTHON, Guest


def bare():
    start = time.perf_counter()
    subprocess.run([*PYTHON, "-B", "-c", "pass"], stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def guest():
    """Seconds to the hello and to the result of a first cell that was sent along."""
    start = time.perf_counter()
    with Guest() as sandbox:
        number = sandbox.start("1+1")
        sandbox.until(lambda: sandbox.hello)
        hello = time.perf_counter() - start
        sandbox.finish(number)
        return hello, time.perf_counter() - start


def latency(sandbox, code="1+1", rounds=2000):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        sandbox.run(code)
        times.append(time.perf_counter() - start)
        sandbox.results.clear()
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def throughput(sandbox, megabytes=10, rounds=10):
    sandbox.run("text = 'x' * 1023 + chr(10)\ntext *= 1024 * %d" % megabytes)
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        size = len(sandbox.run("print(text, end='')").stdout)
        rates.append(size / (time.perf_counter() - start))
        sandbox.results.clear()
    return statistics.median(rates) / 1e6


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    bares, hellos, firsts = [], [], []
    for _ in range(rounds):
        bares.append(bare())
        hello, first = guest()
        hellos.append(hello)
        firsts.append(first)
    for name, times in ("python3 -c pass", bares), ("hello", hellos), ("first result", firsts):
        median, least = statistics.median(times), min(times)
        print("%-16s median %6.2f ms   least %6.2f ms" % (name, median * 1e3, least * 1e3))
    with Guest() as sandbox:
        print("1+1              median %6.1f us   p99 %6.1f us" % tuple(t * 1e6 for t in latency(sandbox)))
        print("print of 10 MB   %6.0f MB/s" % throughput(sandbox))
        sandbox.run("import asyncio; await asyncio.sleep(0)")
        print("1+1 with a loop  median %6.1f us   p99 %6.1f us" % tuple(t * 1e6 for t in latency(sandbox)))
        print("await            median %6.1f us   p99 %6.1f us" % tuple(t * 1e6 for t in latency(sandbox, "await asyncio.sleep(0)")))


if __name__ == "__main__":
    main()
