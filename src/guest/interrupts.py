# Ctrl-C: what a SIGINT does in the interpreter's process, and when.

import _signal
import _thread


class Interrupts:
    """Turns a SIGINT into KeyboardInterrupt in user code, never in our own bookkeeping.

    As a context manager it surrounds bookkeeping that user code calls: an interrupt is then raised at its end.
    """

    def __init__(self, gate):
        self.main = _thread.get_ident()
        # The code of the one function of ours where an interrupt may be raised; it sets `armed`.
        self.gate = gate
        self.handler = self.handle
        # Whether user code is running; how deep it is in bookkeeping; whether that bookkeeping waits for something.
        self.armed, self.held, self.waiting = False, 0, False
        # An interrupt that could not be raised yet; how many came in this run.
        self.pending, self.count = False, 0
        # Set while an event loop runs the cell; may turn the interrupt into a cancellation.
        self.divert = None

    def begin(self):
        self.reset()
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT,))
        self.pending, self.count = False, 0

    def reset(self):
        if _signal.getsignal(_signal.SIGINT) is not self.handler:
            _signal.signal(_signal.SIGINT, self.handler)

    def handle(self, number, frame):
        self.count += 1
        if not self.armed:
            self.pending = True
        elif self.held:
            if self.waiting:
                self.waiting = False
                raise KeyboardInterrupt
            self.pending = True
        elif self.divert is None or not self.divert(frame):
            if frame.f_code is self.gate:
                # Only once, because bookkeeping follows there.
                self.armed = False
            raise KeyboardInterrupt

    def __enter__(self):
        if _thread.get_ident() == self.main:
            self.held += 1

    def __exit__(self, *_):
        if _thread.get_ident() == self.main:
            self.held -= 1
            if self.due() and not self.held:
                self.pending = False
                raise KeyboardInterrupt

    def due(self):
        return self.pending and self.armed

    def wait(self, wait):
        """Waits within bookkeeping; False when an interrupt ended the wait, which is then pending."""
        try:
            self.waiting = True
            if self.due():
                raise KeyboardInterrupt
            wait()
            self.waiting = False
            return True
        except KeyboardInterrupt:
            self.waiting = False
            self.pending = True
            return False
