# Questions to the host, from any thread. One of those who wait reads the control channel, the others sleep until it
# hands them their answer or stops reading. `guest` is the interpreter.

import _thread
import json

LARGEST = 64 * 1024 * 1024
channel = guest.channel
interrupts = guest.interrupts
numbers = iter(range(1, 1 << 32))


class Refused(Exception):
    """The host answered with an error, of a kind when that matters."""

    kind = None


class Sleeper:
    """Somebody who waits; `answer` is false until there is one."""

    def __init__(self, answer=None):
        self.answer = answer
        self.lock = _thread.allocate_lock()
        self.lock.acquire()

    def wake(self):
        try:
            self.lock.release()
        except RuntimeError:
            # Woken twice before it looked.
            pass

    def sleep(self):
        self.lock.acquire()


def ask(method, params, parse=json.loads, default=None):
    """Blocks this thread until the host has answered. An interrupt ends the wait in the main thread."""
    payload = encode(method, params, default)
    with interrupts:
        sleeper = Sleeper()
        number = put(payload, sleeper)
        try:
            wait(sleeper)
        finally:
            forget(number)
    return decode(sleeper.answer, parse)


def encode(method, params, default=None):
    if channel.down < 0:
        raise Refused("a forked child process cannot ask the host; do it in the parent")
    text = json.dumps({"method": method, "params": params}, default=default, allow_nan=False, ensure_ascii=False)
    # Half a surrogate pair is no text to anybody else.
    payload = text.encode("utf-8", "replace")
    if len(payload) > LARGEST:
        raise Refused("%d bytes are too much for one request to the host" % len(payload))
    return payload


def put(payload, waiter):
    with channel.writer:
        number = next(numbers)
    channel.asked[number] = waiter
    channel.send((b"Q", number, payload))
    return number


def forget(number):
    """Nobody waits for this answer any more. When it has not come, the host need not go on looking for it."""
    if channel.asked.pop(number, None) is not None and channel.down >= 0:
        channel.send((b"W", number, b""))


def decode(payload, parse=json.loads):
    answer = parse(payload)
    if "error" in answer:
        refused = Refused(answer["error"])
        refused.kind = answer.get("kind")
        raise refused
    return answer["ok"]


def wait_for_frame():
    """For the main loop, while another thread reads."""
    wait(Sleeper(channel.inbox))


def wait(sleeper):
    in_main = _thread.get_ident() == interrupts.main
    channel.sleepers[id(sleeper)] = sleeper
    try:
        while not sleeper.answer and not (in_main and interrupts.due()):
            # In this order: whoever stops reading looks for sleepers after it has let go of `reader`.
            if not channel.reader.acquire(False):
                pause(sleeper.sleep, in_main)
                continue
            try:
                while not sleeper.answer and (not in_main or pause(readable, in_main)):
                    channel.read()
            finally:
                channel.reader.release()
    finally:
        del channel.sleepers[id(sleeper)]
        channel.pass_on()


def pause(waiting, in_main):
    if in_main and interrupts.armed:
        return interrupts.nap(waiting)
    waiting()
    return True


def readable(timeout=None):
    """Waits for the channel without taking anything from it, so that an interrupt can break in and nothing is lost."""
    import select

    poll = select.poll()
    poll.register(channel.down, select.POLLIN)
    return poll.poll(timeout)
