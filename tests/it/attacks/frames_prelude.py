# Put before each attack of frames.py, in the interpreter itself.
import os
import signal
import sys

# The last of the first 1024 descriptors, see launcher.py.
up, down = sorted(int(name) for name in os.listdir("/proc/self/fd"))[-2:]
run = int(sys._getframe().f_code.co_filename[len("<cell ") : -1])


def send(kind, number, payload, claim=None):
    data = kind + number.to_bytes(4, "big") + (len(payload) if claim is None else claim).to_bytes(4, "big") + payload
    while data:
        data = data[os.write(up, data) :]


def ask(payload):
    """The answer to a question of any form."""
    import json

    questions = runtime._guest.part("queries")
    sleeper = questions.Sleeper()
    questions.put(payload, sleeper)
    questions.wait(sleeper)
    return json.loads(sleeper.answer)


def pipes_of_process_1():
    """What process 1 has open for writing, once more."""
    for name in os.listdir("/proc/1/fd"):
        try:
            if os.readlink("/proc/1/fd/" + name).startswith("pipe:"):
                yield os.open("/proc/1/fd/" + name, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            pass


def signal_process_1():
    """It wakes up and reads on."""
    os.kill(1, signal.SIGCHLD)


def wait():
    """Until somebody ends this."""
    while True:
        signal.pause()
