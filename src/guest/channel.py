# The frames between the interpreter and the supervisor, seen from the interpreter.

import os

import _thread

HEADER = 9
LARGE = 1 << 20
SOFTWARE_FAILURE = 70


class Channel:
    """The frames between this process and the supervisor. The thread that holds `reader` reads and hands out frames."""

    def __init__(self, down, up):
        self.down, self.up = down, up
        self.chunk = memoryview(bytearray(1 << 16))
        self.buffer = bytearray()
        self.inbox = []
        self.writer, self.reader = _thread.allocate_lock(), _thread.allocate_lock()
        # Questions without an answer by id, and the threads that wait while another one reads (see questions.py).
        self.asked, self.waiters = {}, {}

    def send(self, *frames):
        data = b"".join(
            part
            for kind, number, payload in frames
            for part in (kind, number.to_bytes(4, "big"), len(payload).to_bytes(4, "big"), payload)
        )
        with self.writer:
            try:
                size = os.write(self.up, data)
                while size < len(data):
                    size += os.write(self.up, data[size : size + (1 << 20)])
            except OSError:
                # User code closed it, or the supervisor is gone: no result can be sent any more.
                os._exit(SOFTWARE_FAILURE)

    def read(self):
        """Calls read(2) once; for the thread that holds `reader`."""
        try:
            size = os.readv(self.down, (self.chunk,))
        except OSError:
            size = 0
        if not size:
            os._exit(SOFTWARE_FAILURE)
        buffer = self.buffer
        buffer += self.chunk[:size]
        while len(buffer) >= HEADER:
            end = HEADER + int.from_bytes(buffer[5:HEADER], "big")
            if len(buffer) < end:
                break
            kind, number = bytes(buffer[:1]), int.from_bytes(buffer[1:5], "big")
            if len(buffer) == end > LARGE:
                # Nothing follows, so no copy is needed.
                del buffer[:HEADER]
                payload, buffer = buffer, bytearray()
                self.buffer = buffer
            else:
                payload = bytes(buffer[HEADER:end])
                del buffer[:end]
            self.hand_out(kind, number, payload)

    def hand_out(self, kind, number, payload):
        if kind == b"A":
            waiter = self.asked.pop(number, None)
            if waiter is not None:
                waiter.answer = payload
                waiter.wake()
            return
        self.inbox.append((kind, number, payload))
        for waiter in self.waiters.copy().values():
            if waiter.answer is self.inbox:
                waiter.wake()

    def pass_on(self):
        """Wakes one waiting thread to take over; called by every thread that stops reading or waiting."""
        for waiter in self.waiters.copy().values():
            if not waiter.answer:
                waiter.wake()
                return
