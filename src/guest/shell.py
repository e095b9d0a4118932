# Shells and other programs that a cell starts. Each is a fresh process; a shell begins in the folder and with the exported
# variables that the last one left, unless Python changed them since. `guest` is the interpreter.

import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile

# Bytes of one argument of a process: MAX_ARG_STRLEN of Linux is 128 KiB.
LONGEST_ARGUMENT = 96 << 10
# Left by a shell at its end: its folder, and what it exported.
LEAVE_STATE = "trap '{ pwd; printf \"\\0\"; env -0; } >/proc/self/fd/%d 2>/dev/null' EXIT; "
# Variables of the shell itself.
OWN = "_", "SHLVL", "PWD"
CHUNK = 1 << 16


class State:
    """What the last shell left."""

    def __init__(self):
        # The folder of the shells, and that of Python when it was learned.
        self.folder = self.python = None
        # Variables that shells set, or removed as None; those of Python at that time.
        self.changed, self.seen = {}, {}

    def start(self):
        """Returns folder and environment of the next shell."""
        folder = os.getcwd()
        if folder != self.python or not os.path.isdir(self.folder):
            self.python = self.folder = folder
        environment = dict(os.environ)
        for name in [name for name in self.changed if environment.get(name) != self.seen.get(name)]:
            del self.changed[name]
        self.seen = dict(environment)
        for name, value in self.changed.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        return self.folder, environment

    def learn(self, left):
        folder, _, variables = left.partition(b"\0")
        if not variables:
            # It was killed, or has a trap of its own.
            return
        self.folder = os.fsdecode(folder[:-1])
        found = dict(pair.split("=", 1) for pair in os.fsdecode(variables).split("\0") if "=" in pair)
        for name in (self.seen.keys() | found.keys() | self.changed.keys()) - set(OWN):
            if found.get(name) == self.seen.get(name):
                self.changed.pop(name, None)
            else:
                self.changed[name] = found.get(name)


state = State()


def program(*names):
    import shutil

    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise FileNotFoundError(2, "the image has no such program", names[0])


def temporary(data=b""):
    """Returns a file without a name."""
    file = tempfile.TemporaryFile()
    file.write(data)
    file.seek(0)
    return file


def shell(text, name="bash", options=(), arguments=(), **how):
    """Runs text in a shell; returns the exit status."""
    path = program(name, "sh")
    source = text.encode("utf-8", "replace")
    is_long = len(source) > LONGEST_ARGUMENT
    # The other one needs no space when the disk is full.
    with temporary() as left, temporary(source if is_long else b"") as script:
        command = LEAVE_STATE % left.fileno()
        command += ". /proc/self/fd/%d" % script.fileno() if is_long else text
        words = [path, *options, "-c", command, name, *arguments]
        folder, environment = state.start()
        status = run(words, cwd=folder, env=environment, pass_fds=(left.fileno(), script.fileno()), **how)
        left.seek(0)
        state.learn(left.read())
    return status


def script(words, text, **how):
    """Runs a program that reads its script from standard input."""
    path = program(words[0])
    folder, environment = state.start()
    with temporary(text.encode("utf-8", "replace")) as source:
        return run([path, *words[1:]], cwd=folder, env=environment, stdin=source, **how)


def run(words, out=None, err=None, waits=True, **options):
    """Runs a program until it ends; returns its exit status. Processes that it leaves in the background are not waited for.

    Its output goes where that of Python goes, or to the functions `out` and `err`; `err` may also be subprocess.STDOUT.
    """
    streams = {}
    for name, given, number in ("stdout", out, 1), ("stderr", err, 2):
        stream = getattr(sys, name)
        if stream is not None:
            stream.flush()
        guest.outputs[number].flush()
        if given is None and stream is not None and stream is not guest.outputs[number]:
            # Code that collects what is printed, such as contextlib.redirect_stdout.
            given = text_writer(stream)
        if given is subprocess.STDOUT:
            options[name] = given
        elif given is not None:
            options[name], streams[name] = subprocess.PIPE, given
    process = None
    try:
        process = subprocess.Popen(words, **options)
        if not waits:
            return process
        collect(process, {getattr(process, name): write for name, write in streams.items()})
        return process.wait()
    except KeyboardInterrupt:
        # It went to the whole group: the program has a moment to end by itself.
        end(process, 0.5)
    except BaseException:
        end(process, 0)
        raise
    # Where the program waited is nobody's concern.
    raise KeyboardInterrupt


def end(process, patience):
    if process is None:
        return
    try:
        process.wait(patience)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


def collect(process, pipes):
    """Passes on output until the program has ended, and all that it wrote until then."""
    poll = select.poll()
    sinks = {}
    for pipe, write in pipes.items():
        os.set_blocking(pipe.fileno(), False)
        sinks[pipe.fileno()] = write
        poll.register(pipe, select.POLLIN)
    while sinks:
        # A process in the background may hold the pipe open.
        ended = process.poll() is not None
        events = poll.poll(0 if ended else 20)
        if ended and not events:
            break
        for number, _ in events:
            data = os.read(number, CHUNK)
            if data:
                sinks[number](data)
            else:
                poll.unregister(number)
                del sinks[number]
    for pipe in pipes:
        pipe.close()


def text_writer(stream):
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: stream.write(decoder.decode(data))


def say_status(status):
    """Shows an exit status that is not 0; returns it as shells count it."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = "signal"
        print("[ended by signal %d, %s]" % (-status, name), file=sys.stderr)
        return 128 - status
    if status:
        print("[exit status %d]" % status, file=sys.stderr)
    return status


# `!pip install …` asks the host.

PIP = (["pip"], ["pip3"], ["uv", "pip"], ["python", "-m", "pip"], ["python3", "-m", "pip"])


def split_pip(command):
    """Returns the words after `pip`, and what follows that command; None if it is another program."""
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list(lexer)
    except ValueError:
        return None
    for start in PIP:
        if words[: len(start)] == start:
            words = words[len(start) :]
            break
    else:
        return None
    end = next((at for at, word in enumerate(words) if set(word) <= set("|&;>") or word == "2"), len(words))
    follows = next((at for at, word in enumerate(words) if word in ("&&", ";")), None)
    rest = "" if follows is None else command.split(words[follows], 1)[1].strip()
    return words[:end], rest
