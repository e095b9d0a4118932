# Process 1 of the sandbox: moves bytes between the host, the interpreter and its output pipes, delivers interrupts, reaps
# processes. It alone holds the descriptors of the host. Frames from the interpreter are hostile input: anything that
# FRAMES.md does not allow ends the session. Nothing here may wait for the interpreter; waiting for the host is allowed.
# `load` loads another part, `workspace` is the folder whose files are reported.

import os
import select
import sys
import time

import _signal

HEADER = 9
CHUNK = 256 * 1024
# No pipe holds more than this (the kernel's default for pipe-max-size): reading as much takes everything that was in it at
# the start, however fast more is written.
PIPE_CAPACITY = 1024 * 1024
LARGEST_TEXT = 4 * 1024 * 1024
LARGEST_NOTICE = 64 * 1024
LARGEST_DISPLAY = 17 * 1024 * 1024
LARGEST_FRAME = 64 * 1024 * 1024
LARGEST_ANSWER = 136 * 1024 * 1024
# A request for a part of a file.
LARGEST_PATH = 8 * 1024
FROM_CHILD = {b"H": 4096, b"B": 0, b"D": 64 * 1024, b"T": LARGEST_TEXT, b"N": LARGEST_NOTICE, b"Q": LARGEST_FRAME, b"W": 0, b"V": LARGEST_DISPLAY, b"U": CHUNK, b"K": LARGEST_PATH, b"L": 0}
FROM_HOST = dict.fromkeys((b"R", b"C", b"I", b"S", b"Z"), LARGEST_FRAME)
FROM_HOST[b"G"] = LARGEST_PATH
FROM_HOST[b"L"] = 0
ANSWER, BYTES = b"AU"
F_SETPIPE_SZ = 1031
# Seconds between the end of the control channel and the end of the process that held it.
EXIT_GRACE = 2
OOM_COUNTERS = "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"
SOFTWARE_FAILURE = 70


class Violation(Exception):
    pass


def oom_kills():
    for path in OOM_COUNTERS:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        with open(descriptor, "rb") as counters:
            for line in counters.read().splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    return 0


def split_frame(buffer, largest):
    """Takes one whole frame off the front of `buffer`: (kind, id, raw bytes), or None when it is not all there yet."""
    if len(buffer) < HEADER:
        return None
    kind = bytes(buffer[:1])
    size = int.from_bytes(buffer[5:9], "big")
    if size > largest.get(kind, -1):
        raise Violation("a frame of type %r and %d bytes" % (kind, size))
    end = HEADER + size
    if len(buffer) < end:
        return None
    raw = bytes(buffer[:end])
    del buffer[:end]
    return kind, int.from_bytes(raw[1:5], "big"), raw


class Supervisor:
    def __init__(self, child, host_in, host_out, down, up, out, err):
        self.child = child
        self.host_in, self.host_out = host_in, host_out
        self.down, self.up = down, up
        self.outputs = {out: b"O", err: b"E"}
        self.from_host, self.to_child, self.from_child = bytearray(), bytearray(), bytearray()
        # Bytes of an answer that are still to come from the host; it is passed on in pieces.
        self.passing = 0
        # A whole frame of the longest output, or of bytes of an artifact.
        self.chunk = memoryview(bytearray(HEADER + CHUNK))
        self.is_wide = False
        self.greeted = False
        # The current run; whether its code may have begun; whether an interrupt came before that.
        self.run, self.begun, self.interrupt_wanted = 0, False, False
        self.child_is_full = False
        # When the end of the interpreter is overdue.
        self.deadline = None
        self.poll = select.poll()
        # The part that looks at files, once there are any; when the folder was last changed before that.
        self.files, self.untouched = None, None

    def serve(self):
        try:
            self.prepare()
            while True:
                self.turn()
        except (BrokenPipeError, EOFError):
            # The host is gone.
            self.leave(0)
        except Violation as violation:
            self.give_up("the sandbox was ended: its protocol was broken by %s" % violation)
        except BaseException:
            # A bug of ours; the traceback goes to the sandbox's stderr, which is the log of the container.
            sys.excepthook(*sys.exc_info())
            self.leave(SOFTWARE_FAILURE)

    def prepare(self):
        for number in _signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGPIPE:
            _signal.signal(number, _signal.SIG_IGN)
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        os.set_blocking(self.host_out, True)
        for descriptor in self.down, self.up, *self.outputs:
            os.set_blocking(descriptor, False)
        for descriptor in self.host_in, self.up, self.woken, *self.outputs:
            self.poll.register(descriptor, select.POLLIN)
        self.oom_before = oom_kills()
        self.untouched = self.last_change()
        # It may have ended before the signal handler was there.
        self.reap()

    def turn(self):
        if self.deadline is None:
            events = self.poll.poll()
        else:
            events = self.poll.poll(max(0, (self.deadline - time.monotonic()) * 1000))
            if time.monotonic() >= self.deadline:
                # It may have ended while we waited for the host.
                self.reap()
                raise Violation("a closed control channel")
        for descriptor, _ in events:
            if descriptor in self.outputs:
                self.send_output(descriptor, CHUNK)
            elif descriptor == self.up:
                self.read_child()
            elif descriptor == self.host_in:
                self.read_host()
            elif descriptor == self.down:
                self.write_child()
            elif descriptor == self.woken:
                os.read(self.woken, 4096)
                self.reap()

    # Towards the host.

    def send_host(self, kind, number, payload):
        header = kind + number.to_bytes(4, "big") + len(payload).to_bytes(4, "big")
        sent = os.writev(self.host_out, (header, payload))
        if sent < HEADER + len(payload):
            self.send_host_raw(memoryview(header + payload)[sent:])

    def send_host_raw(self, data):
        while data:
            data = data[os.write(self.host_out, data) :]

    def send_output(self, descriptor, budget):
        """Sends up to `budget` bytes of output, or as much as there is."""
        kind = self.outputs[descriptor]
        while budget > 0:
            try:
                size = os.readv(descriptor, (self.chunk[:CHUNK],))
            except BlockingIOError:
                return
            if not size:
                # User code closed it everywhere, which is allowed.
                self.forget(descriptor)
                return
            self.send_host(kind, self.run, self.chunk[:size])
            budget -= size

    def widen(self):
        """Lets large frames fit into the pipes from and to the host. This only makes it faster."""
        self.is_wide = True
        try:
            import fcntl

            for pipe in self.host_out, self.host_in:
                fcntl.fcntl(pipe, F_SETPIPE_SZ, PIPE_CAPACITY)
        except (ImportError, OSError):
            pass

    def drain(self):
        for descriptor in self.outputs:
            self.send_output(descriptor, PIPE_CAPACITY)

    # From the interpreter.

    def read_child(self):
        try:
            size = os.readv(self.up, (self.chunk,))
        except BlockingIOError:
            return
        if not size:
            self.forget(self.up)
            self.expect_end()
        data = self.chunk[:size]
        if size > HEADER and data[0] == BYTES and self.greeted and not self.from_child:
            if not self.is_wide:
                self.widen()
            if size == HEADER + int.from_bytes(data[5:HEADER], "big"):
                # One whole frame, which needs no copy.
                self.send_host_raw(data)
                return
        self.from_child += data
        while True:
            frame = split_frame(self.from_child, FROM_CHILD)
            if frame is None:
                return
            self.handle_child(*frame)

    def handle_child(self, kind, number, raw):
        if self.greeted == (kind == b"H"):
            raise Violation("a frame of type %r at the wrong time" % kind)
        if kind == b"H":
            self.greeted = True
        elif kind == b"B":
            self.expect_run(kind, number)
            self.begun = True
            if self.interrupt_wanted:
                self.interrupt()
            return
        elif kind == b"K":
            # A copy that the user asked for is no work of the code.
            self.file_part().expect(raw[HEADER:])
            return
        elif kind == b"D":
            self.expect_run(kind, number)
            # The output of the run is in the pipes already: send all of it first, under the number of the run.
            self.drain()
            # Once for each run: a folder that nobody has touched costs a look at its time.
            if self.files is not None or self.last_change() != self.untouched:
                self.send_files(number)
            self.run, self.begun = 0, False
        elif kind == b"V":
            if number != self.run:
                # From a thread that displayed something while the run ended.
                return
            if len(raw) == HEADER:
                # The interpreter is about to display something: what it printed before is in the pipes.
                self.drain()
                return
        elif kind not in (b"Q", b"W", b"U", b"L"):
            self.expect_run(kind, number)
        self.send_host_raw(memoryview(raw))

    def expect_end(self):
        if self.deadline is None:
            self.deadline = time.monotonic() + EXIT_GRACE

    def expect_run(self, kind, number):
        if number != self.run or not number:
            raise Violation("a frame of type %r about run %d" % (kind, number))

    # From the host.

    def read_host(self):
        data = os.read(self.host_in, CHUNK)
        if not data:
            raise EOFError
        self.from_host += data
        while True:
            self.pass_answers()
            frame = None if self.passing else split_frame(self.from_host, FROM_HOST)
            if frame is None:
                break
            self.handle_host(*frame)
        self.write_child()

    def pass_answers(self):
        """Passes on the available part of an answer at once: a large one is not held twice."""
        buffer = self.from_host
        while buffer:
            if not self.passing:
                if len(buffer) < HEADER or buffer[0] != ANSWER:
                    return
                self.passing = HEADER + int.from_bytes(buffer[5:HEADER], "big")
                if self.passing > HEADER + LARGEST_ANSWER:
                    raise ValueError("an answer of %d bytes" % (self.passing - HEADER))
                if self.passing > CHUNK and not self.is_wide:
                    self.widen()
            size = min(self.passing, len(buffer))
            self.to_child += buffer[:size]
            del buffer[:size]
            self.passing -= size

    def handle_host(self, kind, number, raw):
        if kind == b"I":
            if number == self.run and number:
                self.interrupt()
            return
        if kind == b"L" and number == 2:
            # Whether the connection still leads here, also beside a run.
            self.send_host(b"L", number, b"")
            return
        if kind == b"G":
            self.send_host(b"G", number, self.file_part().answer(raw[HEADER:]))
            return
        if kind == b"R":
            if self.run or not number:
                raise ValueError("run %d came before the end of run %d" % (number, self.run))
            # Earlier output belongs to no run.
            self.drain()
            self.run, self.begun, self.interrupt_wanted = number, False, False
        self.to_child += raw

    # Files of the workspace.

    def last_change(self):
        try:
            return os.stat(workspace).st_mtime_ns
        except OSError:
            return None

    def file_part(self):
        if self.files is None:
            self.files = load("files", root=os.fsencode(workspace))
        return self.files

    def send_files(self, number):
        changed = self.file_part().changed()
        if changed:
            self.send_host(b"F", number, changed)

    def write_child(self):
        """Writes what fits; the poll loop calls it again when there is space."""
        try:
            while self.to_child:
                with memoryview(self.to_child) as pending, pending[:CHUNK] as front:
                    size = os.write(self.down, front)
                del self.to_child[:size]
        except BlockingIOError:
            self.poll.register(self.down, select.POLLOUT)
            self.child_is_full = True
            return
        except BrokenPipeError:
            # The other direction, or the end of the process, says more.
            self.to_child.clear()
            self.expect_end()
        if self.child_is_full:
            self.child_is_full = False
            self.forget(self.down)

    def interrupt(self):
        """Sends Ctrl-C, once the interpreter has said that it belongs to this run."""
        self.interrupt_wanted = not self.begun
        if self.begun:
            self.signal_group(_signal.SIGINT)
            # A stopped process could not answer.
            self.signal_group(_signal.SIGCONT)

    # The end.

    def signal_group(self, number):
        try:
            os.killpg(self.child, number)
        except OSError:
            pass

    def forget(self, descriptor):
        try:
            self.poll.unregister(descriptor)
        except KeyError:
            pass

    def reap(self):
        ended = None
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if info is None:
                break
            if info.si_pid == self.child:
                # While its id cannot belong to another process yet.
                self.signal_group(_signal.SIGKILL)
            pid, status = os.waitpid(info.si_pid, 0)
            if pid == self.child:
                ended = status
        if ended is not None:
            self.report_end(ended)

    def report_end(self, status):
        """Sends the remaining frames and output of the interpreter, then how it ended."""
        self.deadline = None
        try:
            self.read_child()
        except Violation:
            pass
        self.drain()
        if os.WIFSIGNALED(status):
            code, text = 128 + os.WTERMSIG(status), "signal %d" % os.WTERMSIG(status)
        else:
            code, text = os.WEXITSTATUS(status), "exit %d" % os.WEXITSTATUS(status)
        if oom_kills() > self.oom_before:
            text += " oom"
        self.send_host(b"X", self.run, text.encode())
        self.leave(code)

    def give_up(self, reason):
        try:
            self.send_host(b"N", self.run, reason.encode())
            self.signal_group(_signal.SIGKILL)
            os.kill(self.child, _signal.SIGKILL)
            os.waitpid(self.child, 0)
            # Our SIGKILL would look like one of the kernel, which means that memory ran out.
            self.report_end(SOFTWARE_FAILURE << 8)
        finally:
            self.leave(SOFTWARE_FAILURE)

    def leave(self, code):
        self.signal_group(_signal.SIGKILL)
        os._exit(code)
