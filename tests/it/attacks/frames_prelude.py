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

    questions = runtime._guest.part("questions")
    waiter = questions.Waiter()
    questions.put(payload, waiter)
    questions.wait(waiter)
    return json.loads(waiter.answer)


def host():
    """What process 1 writes to the bridge, opened once more: the last of its pipes, see launcher.py."""
    places = ["/proc/1/fd/%d" % number for number in sorted(int(name) for name in os.listdir("/proc/1/fd"))]
    last = [place for place in places if os.readlink(place).startswith("pipe:")][-1]
    return os.open(last, os.O_WRONLY)


def signal_process_1():
    """It wakes up and reads on."""
    os.kill(1, signal.SIGCHLD)


def wait():
    """Until somebody ends this."""
    while True:
        signal.pause()
