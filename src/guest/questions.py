# Questions to the host, from any thread. One of the waiting threads reads the control channel; the others sleep until it
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


class Waiter:
    """A thread that waits; `answer` is false until there is one."""

    def __init__(self, answer=None):
        self.answer = answer
        self.lock = _thread.allocate_lock()
        self.lock.acquire()

    def wake(self):
        try:
            self.lock.release()
        except RuntimeError:
            # It was woken twice before it ran.
            pass

    def sleep(self):
        self.lock.acquire()


def ask(method, params, parse=json.loads, default=None):
    """Blocks this thread until the host has answered. An interrupt ends the wait in the main thread."""
    payload = encode(method, params, default)
    with interrupts:
        waiter = Waiter()
        number = put(payload, waiter)
        try:
            wait(waiter)
        finally:
            forget(number)
    return decode(waiter.answer, parse)


def encode(method, params, default=None):
    if channel.down < 0:
        raise Refused("a forked child process cannot use the bridge; do it in the parent process")
    text = json.dumps({"method": method, "params": params}, default=default, allow_nan=False, ensure_ascii=False)
    # Half a surrogate pair is not valid UTF-8.
    payload = text.encode("utf-8", "replace")
    if len(payload) > LARGEST:
        raise Refused("the request has %d bytes, the host takes at most %d" % (len(payload), LARGEST))
    return payload


def put(payload, waiter):
    with channel.writer:
        number = next(numbers)
    channel.asked[number] = waiter
    channel.send((b"Q", number, payload))
    return number


def forget(number):
    """Stops waiting for an answer. If it has not come, the host is told that it is not needed."""
    if channel.asked.pop(number, None) is not None and channel.down >= 0:
        channel.send((b"W", number, b""))


def decode(payload, parse=json.loads):
    answer = parse(payload)
    if "error" in answer:
        refused = Refused(answer["error"])
        refused.kind = answer.get("kind")
        raise refused
    return answer["ok"]


def wait(waiter):
    in_main = _thread.get_ident() == interrupts.main
    channel.waiters[id(waiter)] = waiter
    try:
        while not waiter.answer and not (in_main and interrupts.due()):
            # In this order: a thread that stops reading looks for waiters after it has released `reader`.
            if not channel.reader.acquire(False):
                pause(waiter.sleep, in_main)
                continue
            try:
                while not waiter.answer and (not in_main or pause(readable, in_main)):
                    channel.read()
            finally:
                channel.reader.release()
    finally:
        del channel.waiters[id(waiter)]
        channel.pass_on()


def pause(waiting, in_main):
    if in_main and interrupts.armed:
        return interrupts.wait(waiting)
    waiting()
    return True


def readable(timeout=None):
    """Waits until the channel can be read, and reads nothing, so that an interrupt can end the wait and nothing is lost."""
    import select

    poll = select.poll()
    poll.register(channel.down, select.POLLIN)
    return poll.poll(timeout)
