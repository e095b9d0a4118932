"""The host's end of the frames, for tests: starts the guest as an ordinary process and speaks FRAMES.md with it.

GUEST_PYTHON names the interpreter to test (a command line, split at spaces), by default the one that runs the tests.
"""

import collections
import functools
import json
import os
import select
import shlex
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PARTS = (
    "launcher",
    "supervisor",
    "interrupts",
    "channel",
    "namespace",
    "interpreter",
    "questions",
    "event_loop",
    "report",
    "display",
    "packages",
    "imports",
    "script",
    "notebook",
    "magics",
    "shell",
    "timing",
    "inspection",
    "history",
    "reset",
    "runtime",
    "servers",
    "values",
    "files",
    "artifacts",
    "steps",
    "offers",
    "saved",
)
PYTHON = shlex.split(os.environ.get("GUEST_PYTHON", "")) or [sys.executable]
# Then it sees other files than we do.
IN_CHROOT = "chroot" in PYTHON[0]
# A guard against hangs, not a measure of anything: far beyond what a slow machine needs.
PATIENCE = 60

Ended = collections.namedtuple("Ended", "text status")


def source(name):
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


BOOT = source("boot.txt").decode()


@functools.lru_cache(maxsize=None)
def blob(settings="", compiled=None):
    parts = [("compiled", compiled)] if compiled is not None else []
    parts += [(name, source(name + ".py")) for name in PARTS]
    contents = " ".join("%s %d" % (name, len(text)) for name, text in parts)
    body = ("%s\n%s\n" % (settings, contents)).encode() + b"".join(text for _, text in parts)
    return len(body).to_bytes(8, "big") + body


def frame(kind, number, payload=b""):
    if isinstance(payload, str):
        payload = payload.encode()
    return kind + number.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


class GuestEnded(Exception):
    """The guest ended while a result was waited for; `.end` says how."""

    def __init__(self, end, results):
        super().__init__("%r after %r" % (end, dict(results)))
        self.end = end


class Result:
    def __init__(self):
        self.stdout = self.stderr = b""
        self.traceback, self.notices = "", []
        # Each with the length of standard output before it, and its forms.
        self.displays = []
        self.files = b""
        self.status = self.code = self.error = None

    @property
    def out(self):
        return self.stdout.decode()

    @property
    def err(self):
        return self.stderr.decode()

    def __repr__(self):
        return "Result(%r)" % (self.__dict__,)


class Guest:
    def __init__(self, settings="", prefix=(), python=None, stderr=None, compiled=None):
        self.process = subprocess.Popen(
            [*prefix, *(python or PYTHON), "-B", "-c", BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
            # Settings of the Python that runs the tests are none of the guest's.
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        self.to = self.process.stdin.fileno()
        self.source = self.process.stdout.fileno()
        self.buffer = bytearray()
        self.results = collections.defaultdict(Result)
        self.done = set()
        self.frames = []
        self.questions, self.withdrawn = [], []
        # Answers by method; raw ones return bytes.
        self.answers, self.raw_answers = {}, {}
        # Answers to requests for files, and bytes of artifacts, by number.
        self.parts, self.uploads = {}, collections.defaultdict(bytearray)
        self.hello = self.end = self.offered = None
        self.run_number = 0
        self.send_raw(blob(settings, compiled))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Hangs up; the guest has to end by itself."""
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    # Sending.

    def send_raw(self, data):
        while data:
            data = data[os.write(self.to, data) :]

    def send(self, kind, number, payload=b""):
        self.send_raw(frame(kind, number, payload))

    def start(self, code, context=None):
        self.run_number += 1
        if context is not None:
            self.send(b"C", self.run_number, json.dumps(context))
        self.send(b"R", self.run_number, code)
        return self.run_number

    def interrupt(self, number):
        self.send(b"I", number)

    def read_file(self, path, start, length):
        number = len(self.parts) + 1
        self.send(b"G", number, b"%d %d %s" % (start, length, os.fsencode(path)))
        self.until(lambda: number in self.parts)
        return self.parts[number]

    # Receiving.

    def run(self, code, context=None):
        return self.finish(self.start(code, context))

    def finish(self, number):
        self.until(lambda: number in self.done)
        return self.results[number]

    def interrupt_until_done(self, number):
        """As the bridge does: an interrupt that comes just before a wait begins does not end it."""
        deadline = time.monotonic() + PATIENCE
        while number not in self.done:
            self.interrupt(number)
            if self.end is not None or time.monotonic() > deadline:
                raise GuestEnded(self.end, self.results)
            if select.select([self.source], [], [], 0.25)[0]:
                self.receive(deadline)
        return self.results[number]

    def until(self, condition, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not condition():
            if self.end is not None:
                raise GuestEnded(self.end, self.results)
            self.receive(deadline)

    def wait_end(self):
        try:
            self.until(lambda: False)
        except GuestEnded as ended:
            return ended.end

    def receive_now(self):
        """What is there already, if anything."""
        if select.select([self.source], [], [], 0)[0]:
            self.receive(time.monotonic() + PATIENCE)

    def receive(self, deadline):
        ready, _, _ = select.select([self.source], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError("nothing from the guest for a long time; so far: %.4000r" % dict(self.results))
        data = os.read(self.source, 1 << 20)
        if not data:
            self.end = Ended(self.end, self.process.wait(PATIENCE))
            return
        self.buffer += data
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[5:9], "big")
            if len(self.buffer) < 9 + size:
                break
            kind, number = bytes(self.buffer[:1]), int.from_bytes(self.buffer[1:5], "big")
            payload = bytes(self.buffer[9 : 9 + size])
            del self.buffer[: 9 + size]
            self.handle(kind, number, payload)
        if self.end is not None:
            self.end = Ended(self.end, self.process.wait(PATIENCE))

    def handle(self, kind, number, payload):
        self.frames.append((kind, number, len(payload)))
        result = self.results[number]
        if kind == b"O":
            result.stdout += payload
        elif kind == b"E":
            result.stderr += payload
        elif kind == b"F":
            result.files += payload
        elif kind == b"G":
            self.parts[number] = payload
        elif kind == b"U":
            self.uploads[number] += payload
        elif kind == b"T":
            result.traceback += payload.decode()
        elif kind == b"N":
            result.notices.append(payload.decode())
        elif kind == b"V":
            table, _, rest = payload.partition(b"\n")
            forms = {}
            for mime, size in json.loads(table):
                forms[mime], rest = rest[:size], rest[size:]
            assert not rest
            result.displays.append((len(result.stdout), forms))
        elif kind == b"D":
            first, _, result.error = payload.decode().partition("\n")
            result.status, code = first.split()
            result.code = int(code)
            self.done.add(number)
        elif kind == b"Q":
            self.answer(number, json.loads(payload))
        elif kind == b"W":
            self.withdrawn.append(number)
        elif kind == b"P":
            self.offered = payload
        elif kind == b"H":
            self.hello = payload.decode()
        elif kind == b"X":
            self.end = payload.decode()
        elif kind == b"L":
            # Only what was asked for comes: the test looks at the frames.
            pass
        else:
            raise AssertionError("a frame of type %r" % kind)

    def answer(self, number, query):
        self.questions.append((number, query["method"], query["params"]))
        if query["method"] in self.raw_answers:
            self.send(b"A", number, self.raw_answers[query["method"]](query["params"]))
            return
        answer = self.answers.get(query["method"])
        if answer is None:
            self.send(b"A", number, json.dumps({"error": "no such method: %s" % query["method"]}))
            return
        value = answer(query["params"]) if callable(answer) else answer
        if isinstance(value, Refusal):
            self.send(b"A", number, json.dumps(value._asdict()))
        elif isinstance(value, bytes):
            self.send(b"A", number, b"=" + value)
        elif value is not LATER:
            self.send(b"A", number, json.dumps({"ok": value}))


Refusal = collections.namedtuple("Refusal", "error kind", defaults=[None])
# An answer that the test sends itself.
LATER = object()
