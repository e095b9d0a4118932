# The first part of the blob: compiles what every session needs, makes the pipes and forks into the two processes.
# The boot line provides `settings`, `contents` (the table of contents), `body` (all parts, one after the other) and
# `codes` (parts that the host had in compiled form for this version of Python, by name).

import builtins
import os
import sys

# Our own copy, so that user code that replaces one of them does not change the guest.
__builtins__ = dict(vars(builtins))
# Compiled before the fork: afterwards nearly every page that the compiler touches costs a copy, which takes longer than
# a second processor saves. All other parts are compiled at first use, where they are used.
EARLY = "supervisor", "interrupts", "channel", "namespace", "interpreter"
# Compiled parts are sent with every start, so only those that most sessions need are offered.
OFFERED = "launcher", "event_loop", "questions", "report"


def unpack():
    words = contents.decode().split()
    parts, start = {}, 0
    for name, size in zip(words[::2], words[1::2]):
        end = start + int(size)
        parts[name] = body[start:end]
        start = end
    return parts


def compiled(name):
    return compile(PARTS[name], "<codebridge %s>" % name, "exec", 0, True)


def load(name, module=None, **given):
    """Executes a part in a module, by default one outside of sys.modules; `given` are names that it gets."""
    if module is None:
        module = type(sys)("codebridge." + name)
    module.__dict__.update(given, __builtins__=__builtins__)
    exec(CODES.pop(name, None) or compiled(name), module.__dict__)
    return module


def offer_codes():
    """Sends parts in compiled form, which the host sends with the next start. No user code has run that could forge them."""
    import marshal

    CODES.update((name, compiled(name)) for name in OFFERED if name not in CODES)
    payload = repr(sys.version).encode() + b"\n" + marshal.dumps(CODES)
    frame = b"P" + bytes(4) + len(payload).to_bytes(4, "big") + payload
    while frame:
        frame = frame[os.write(1, frame) :]


def private_descriptors(descriptors):
    """Moves descriptors to the top of the first 1024, away from code that opens, closes or counts from 3 up."""
    limit = os.sysconf("SC_OPEN_MAX")
    target = limit if 0 < limit < 1024 else 1024
    moved = []
    for descriptor in descriptors:
        target -= 1
        moved.append(os.dup2(descriptor, target, False))
    # Other descriptors that this process was started with are not for user code either.
    os.closerange(3, target)
    return moved


def forget_boot():
    """Removes what the boot line left in the user's namespace, and from 3.13 on in linecache as the source of <string>."""
    main = sys.modules["__main__"].__dict__
    for name in "os", "sys", "marshal", "r", "s", "t", "b", "n", "c", "e", "v", "_":
        main.pop(name, None)
    linecache = sys.modules.get("linecache")
    for cache in "cache", "_interactive_cache":
        getattr(linecache, cache, {}).clear()


def become_interpreter(down, up, out, err):
    import _signal

    os.setpgid(0, 0)
    for number in _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGTERM:
        # The process that started the runtime may ignore some, and child processes would inherit that.
        _signal.signal(number, _signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    descriptors = private_descriptors((down, up, out, err))
    forget_boot()
    pairs = (pair.split("=", 1) for pair in settings.decode().split())
    load("interpreter", load=load, part_sources=PARTS).Interpreter(*descriptors, dict(pairs)).serve()


def resume(descriptors):
    """Goes on as the interpreter that asked to be replaced: see reset.py."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.closerange(3, min(descriptors))
    forget_boot()
    pairs = dict(pair.split("=", 1) for pair in settings.decode().split())
    resumed = PARTS.pop("resumed")
    load("interpreter", load=load, part_sources=PARTS).Interpreter(*descriptors, pairs).serve(resumed)


def shut_out_network():
    """Installs the filter of a pod, which both processes and all others inherit, and forgets what the cluster tells pods."""
    given = dict(pair.split("=", 1) for pair in settings.decode().split())
    if "filter" not in given:
        return
    for name in [name for name in os.environ if name.startswith("KUBERNETES_")]:
        del os.environ[name]
    load("filter").install(given["filter"])


def main():
    shut_out_network()
    down, up, out, err = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    host_in, host_out = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    child = os.fork()
    if not child:
        become_interpreter(down[0], up[1], out[1], err[1])
    try:
        # Both processes do it, so that it is done before either relies on it.
        os.setpgid(child, child)
    except OSError:
        pass
    os.dup2(0, 1)
    for descriptor in down[0], up[1], out[1], err[1]:
        os.close(descriptor)
    given = dict(pair.split("=", 1) for pair in settings.decode().split())
    supervisor = load("supervisor", load=load, workspace=given.get("workspace", "/workspace"))
    supervisor.Supervisor(child, host_in, host_out, down[1], up[0], out[0], err[0]).serve()


PARTS = unpack()
CODES = codes
if not CODES:
    CODES.update((name, compiled(name)) for name in EARLY)
    if b"offer=1" in settings.split():
        offer_codes()
if b" resume=" in b" " + settings:
    resume([int(number) for number in settings.rpartition(b"resume=")[2].split()[0].split(b",")])
else:
    main()
