# Artifacts: what code keeps for the user and for later sessions. The bytes go to the host in frames, so that an artifact may
# be larger than the sandbox's disk and memory. `guest` is the interpreter.

import io
import os
import sys

CHUNK = 256 * 1024
# After so many bytes the host is asked whether it still takes them.
CHECK = 16 << 20
PIECE = 1 << 20
# Parts that are asked for before they are needed.
AHEAD = 2
F_SETPIPE_SZ = 1031

runtime = guest.runtime
numbers = iter(range(1, 1 << 32))
wide = set()


class Upload(io.RawIOBase):
    """A file on its way to the host."""

    def __init__(self, name, description):
        self.number = next(numbers)
        self.sent, self.checked = 0, 0
        given = {"transfer": self.number, "name": name, "description": description}
        try:
            runtime._ask("artifact_begin", given)
        except KeyboardInterrupt:
            # The host may have begun.
            self.abort()
            raise
        widen(guest.channel.up)

    def writable(self):
        return True

    def write(self, data):
        if isinstance(data, memoryview) and not data.c_contiguous:
            data = data.tobytes()
        with memoryview(data) as view, view.cast("B") as octets:
            size = len(octets)
            for start in range(0, size, CHUNK):
                self.send(octets[start : start + CHUNK])
                self.sent += min(CHUNK, size - start)
                if self.sent - self.checked >= CHECK:
                    self.checked = self.sent
                    runtime._ask("artifact_check", {"transfer": self.number})
        return size

    def send(self, data):
        """Sends a frame without a copy of its bytes."""
        header = b"U" + self.number.to_bytes(4, "big") + len(data).to_bytes(4, "big")
        channel = guest.channel
        # Half a frame would be the end of the session.
        with guest.interrupts, channel.writer:
            sent = os.writev(channel.up, (header, data))
            if sent < len(header) + len(data):
                rest = memoryview(header + data)[sent:]
                while rest:
                    rest = rest[os.write(channel.up, rest) :]

    def commit(self):
        return runtime._ask("artifact_commit", {"transfer": self.number, "bytes": self.sent})

    def abort(self):
        # Nobody waits for the answer: an interrupt may be the reason.
        questions = guest.part("questions")
        with guest.interrupts:
            questions.put(questions.encode("artifact_abort", {"transfer": self.number}), questions.Waiter())


def widen(pipe):
    """Lets a chunk fit into a pipe from or to process 1."""
    if pipe not in wide:
        wide.add(pipe)
        try:
            import fcntl

            fcntl.fcntl(pipe, F_SETPIPE_SZ, 1 << 20)
        except OSError:
            pass


def save(source, name=None, description=None):
    if isinstance(source, str) and name is not None and not isinstance(name, str):
        raise TypeError("save_artifact takes what to keep first, then its name: save_artifact(%s, %r)" % (shown(name), source[:100]))
    for what, value in ("name", name), ("description", description):
        if value is not None and not isinstance(value, str):
            raise TypeError("%s must be text, not %r" % (what, value))
    write, usual = writer_of(source, name)
    if name is None:
        name = usual
    if not name:
        raise ValueError("an artifact needs a name: save_artifact(source, name='result.txt')")
    upload = Upload(name, description)
    try:
        write(upload)
        saved = upload.commit()
    except BaseException:
        upload.abort()
        raise
    return runtime._Artifact(saved)


def shown(value):
    """Returns a short value as code, and the type of another one."""
    is_short = isinstance(value, (str, bytes)) and len(value) <= 30
    return repr(value) if is_short else type(value).__name__


def extension(name):
    return os.path.splitext(name or "")[1][1:].lower()


def writer_of(source, name):
    """Returns a function that writes what is to be kept, and the name it gets by default."""
    kind = type(source)
    module = kind.__module__.partition(".")[0]
    if isinstance(source, os.PathLike) or (isinstance(source, str) and is_path(source, name)):
        path = os.fspath(source)
        return lambda upload: copy(open(path, "rb"), upload), os.path.basename(os.fsdecode(path))
    if isinstance(source, str):
        return lambda upload: upload.write(source.encode("utf-8", "surrogateescape")), None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return lambda upload: upload.write(source), None
    if guest.part("display").is_figure(source):
        return lambda upload: buffered(upload, lambda file: source.savefig(file, format=extension(name) or "png")), "figure.png"
    if module == "PIL" and hasattr(source, "save"):
        return lambda upload: buffered(upload, lambda file: save_image(source, file, name)), "image.png"
    if hasattr(kind, "to_csv") or hasattr(kind, "write_csv"):
        return frame_writer(source, name), "data.csv"
    if hasattr(kind, "read"):
        given = getattr(source, "name", None)
        usual = os.path.basename(given) if isinstance(given, str) else None
        return lambda upload: copy(source, upload, close=False), usual
    if isinstance(source, (dict, list, tuple)):
        text = json_of(source)
        return lambda upload: upload.write(text), "data.json"
    if hasattr(kind, "__next__") or (hasattr(kind, "__iter__") and not isinstance(source, (set, frozenset))):
        return lambda upload: write_all(source, upload), None
    raise TypeError(
        "save_artifact takes a path, bytes, text, a figure, an image, a data frame, a dict or list of JSON, a file object or "
        "an iterator of bytes, not %s" % kind.__name__
    )


def json_of(source):
    import json

    try:
        return (json.dumps(source, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace")
    except TypeError as error:
        raise TypeError(
            "save_artifact keeps a %s as JSON, and this one is none (%s); convert what is in it, or give bytes: "
            "save_artifact(pickle.dumps(value), 'value.pickle')" % (type(source).__name__, error)
        ) from None


def is_path(source, name):
    """Whether text is the path of a file: if there is one, or if it has no name of its own."""
    if len(source) <= 4096 and "\0" not in source and "\n" not in source:
        if os.path.isfile(source):
            return True
        if name is None:
            raise FileNotFoundError(
                2, "No such file; to keep the text itself, name it: save_artifact(text, name='notes.txt')", source
            )
    return False


def copy(file, upload, close=True):
    try:
        while True:
            data = file.read(CHUNK)
            if not data:
                return
            upload.write(data.encode() if isinstance(data, str) else data)
    finally:
        if close:
            file.close()


def write_all(pieces, upload):
    for piece in pieces:
        if isinstance(piece, str):
            piece = piece.encode()
        elif not isinstance(piece, (bytes, bytearray, memoryview)):
            raise TypeError("an iterator for save_artifact must yield bytes, not %s" % type(piece).__name__)
        upload.write(piece)


def buffered(upload, write):
    """For formats whose writers go back in the file."""
    file = io.BytesIO()
    write(file)
    with file.getbuffer() as data:
        upload.write(data)


def save_image(image, file, name):
    from PIL import Image

    kind = Image.registered_extensions().get("." + extension(name), "PNG")
    image.save(file, format=kind)


def frame_writer(frame, name):
    wanted = extension(name)
    if wanted == "parquet":
        save = getattr(frame, "to_parquet", None) or frame.write_parquet
        return lambda upload: buffered(upload, save)
    if wanted in ("xlsx", "json"):
        save = getattr(frame, {"xlsx": "to_excel", "json": "to_json"}[wanted], None)
        save = save or getattr(frame, {"xlsx": "write_excel", "json": "write_json"}[wanted], None)
        if save is not None:
            return lambda upload: buffered(upload, save)
    return lambda upload: save_csv(frame, upload)


def save_csv(frame, upload):
    file = io.BufferedWriter(upload, CHUNK)
    if hasattr(frame, "write_csv"):
        frame.write_csv(file)
    else:
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        index = getattr(frame, "index", None)
        # Numbers from 0 on say nothing.
        is_plain = type(index).__name__ == "RangeIndex" and index.name is None
        frame.to_csv(text, index=not is_plain)
        text.flush()
        text.detach()
    file.flush()
    file.detach()


def listed():
    return [runtime._Artifact(one) for one in runtime._ask("artifacts", {})]


def load(name, path=None, version=None):
    if not isinstance(name, str):
        raise TypeError("name must be text, not %r" % (name,))
    if path is None:
        return b"".join(pieces(name, version))
    path = os.fspath(path)
    # Beside the file, so that nobody finds half of it.
    staging = "%s.%d.part" % (path, os.getpid())
    try:
        with open(staging, "wb") as file:
            for piece in pieces(name, version):
                file.write(piece)
        os.replace(staging, path)
    except BaseException:
        try:
            os.unlink(staging)
        except OSError:
            pass
        raise
    return path


def pieces(name, version):
    """Yields the content of an artifact, all of it from the same version."""
    widen(guest.channel.down)
    if len(guest.channel.chunk) < CHUNK:
        guest.channel.chunk = memoryview(bytearray(CHUNK))
    wanted = {"name": name, "version": version, "start": 0, "length": PIECE}
    # Its version and its size, then the bytes.
    head, data = runtime._ask("artifact_read", wanted, parse)
    wanted["version"], start = head["version"], len(data)
    # While a part is used, the host sends the next ones.
    parts = [Part(wanted, start + PIECE * n) for n in range(AHEAD) if start + PIECE * n < head["bytes"]]
    try:
        yield data
        while parts:
            _, data = parts[0].take()
            del parts[0]
            following = start + PIECE * (len(parts) + 1)
            start += PIECE
            if following < head["bytes"]:
                parts.append(Part(wanted, following))
            if not len(data):
                return
            yield data
    finally:
        for part in parts:
            part.forget()


class Part:
    """A part of an artifact that the host was asked for."""

    def __init__(self, wanted, start):
        self.questions = guest.part("questions")
        with guest.interrupts:
            self.waiter = self.questions.Waiter()
            self.number = self.questions.put(self.questions.encode("artifact_read", {**wanted, "start": start}), self.waiter)

    def take(self):
        with guest.interrupts:
            self.questions.wait(self.waiter)
        return runtime._answered(lambda: self.questions.decode(self.waiter.answer, parse))

    def forget(self):
        with guest.interrupts:
            self.questions.forget(self.number)


def parse(payload):
    """Reads an answer that ends with bytes: a line of JSON before them."""
    import json

    view = memoryview(payload)
    end = bytes(view[:4096]).find(b"\n")
    if end < 0:
        return json.loads(payload)
    return {"ok": (json.loads(bytes(view[:end])), view[end + 1 :])}
