# runtime.reset(): the interpreter's process executes Python again, from the start. Its number, its connection to the supervisor
# and the files of the sandbox stay; variables, modules and threads are gone. `guest` is the interpreter.

import marshal
import os
import tempfile

import _signal


def replace(frames):
    """Replaces this process. The new one sends `frames` and waits for the next run. Returns, when that is impossible, why."""
    try:
        command, environment = own_command()
        start = blob(frames)
    except (OSError, ValueError, MemoryError) as error:
        return "the interpreter could not be replaced: %s" % error
    descriptors = (guest.channel.down, guest.channel.up, *guest.saved_outputs.values())
    # An interrupt is for nobody now, and would end a Python that is starting.
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    for number, descriptor in guest.saved_outputs.items():
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    os.dup2(start.fileno(), 0)
    os.chdir(guest.folder)
    os.execvpe(command[0], command, environment)


def own_command():
    """Returns command line and environment of this process as they were when it started."""
    with open("/proc/self/cmdline", "rb") as file:
        command = file.read().split(b"\0")[:-1]
    with open("/proc/self/environ", "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    if b"-c" not in command:
        raise ValueError("its command line is not known")
    return command, {name: value for name, _, value in pairs}


def blob(frames):
    """Returns a file with what the host sent at the start, and what the new process has to go on with."""
    channel = guest.channel
    descriptors = (channel.down, channel.up, *guest.saved_outputs.values())
    settings = {name: value for name, value in guest.settings.items() if name not in ("offer", "resume")}
    settings["resume"] = ",".join(map(str, descriptors))
    tools = guest.tools + [
        "%s\n%s" % (name, guest.sources["<saved tool %s>" % name])
        for name in sorted(guest.tool_names)
        if "<saved tool %s>" % name in guest.sources
    ]
    sources = dict(guest.part_sources)
    sources["resumed"] = marshal.dumps((frames, bytes(channel.buffer), tools))
    contents = " ".join("%s %d" % (name, len(source)) for name, source in sources.items())
    line = " ".join("%s=%s" % pair for pair in settings.items())
    body = ("%s\n%s\n" % (line, contents)).encode() + b"".join(sources.values())
    # Not one in memory: the sandbox refuses memfd_create.
    file = tempfile.TemporaryFile()
    file.write(len(body).to_bytes(8, "big") + body)
    file.seek(0)
    return file


def resume(resumed):
    """In the new process: goes on where the old one ended."""
    frames, buffer, tools = marshal.loads(resumed)
    guest.channel.buffer += buffer
    guest.tools += tools
    guest.channel.send(*frames)
