# %% every_kind
import io
import pathlib

open("p.txt", "w").write("path")
saved = [
    runtime.save_artifact("p.txt", description="from a path"),
    await runtime.save_artifact(pathlib.Path("p.txt"), "again.txt"),
    runtime.save_artifact(b"\0bytes", name="b.bin"),
    runtime.save_artifact("text \u00e4", name="t.txt"),
    runtime.save_artifact(io.BytesIO(b"file"), name="f"),
    runtime.save_artifact((b"x" * 1000 for _ in range(1000)), name="i"),
    runtime.save_artifact("second", name="t.txt"),
]
print([(one["name"], one["version"], one["bytes"]) for one in saved])

# %% larger_than_the_disk
import hashlib

piece, digest = bytes(range(256)) * 4096, hashlib.sha256()
for _ in range(PIECES):
    digest.update(piece)
saved = runtime.save_artifact((piece for _ in range(PIECES)), name="large.bin")
print(saved["bytes"] == PIECES << 20, saved["sha256"] == digest.hexdigest())

# %% load_large
digest = hashlib.sha256()
for part in runtime._guest.part("artifacts").pieces("large.bin", None):
    digest.update(part)
print(digest.hexdigest() == saved["sha256"])

# %% bad_names
for name in "", ".", "..", "../x", "a/b", "/etc/x", "a\\b", ".staging", "a\0b", "a\nb", "x" * 4096, "\u202ex", " x", "\udc80/":
    try:
        runtime.save_artifact(b"x", name=name or None)
    except (runtime.MCPError, ValueError) as error:
        text = str(error)
        assert len(text) < 250 and "\n" not in text, text
    else:
        print("saved", ascii(name))
    for version in None, 1:
        try:
            runtime.load_artifact(name, version=version)
        except runtime.MCPError as error:
            assert "/home" not in str(error) and "/root" not in str(error), error
        else:
            print("loaded", ascii(name))
print("refused")

# %% endless
import itertools

print("ready", flush=True)
runtime.save_artifact(itertools.repeat(bytes(1 << 20)), name="endless")

# %% fails_in_the_middle
def pieces():
    yield b"x" * 1000
    raise ValueError("middle")


runtime.save_artifact(pieces(), name="half")

# %% forged
import gc, json

[guest] = [it for it in gc.get_objects() if type(it).__name__ == "Interpreter"]
guest.channel.send((b"U", 12345, b"bytes of nothing"))
questions = guest.part("questions")
for method, params in (
    ("artifact_commit", {"transfer": 1, "bytes": 0}),
    ("artifact_check", {"transfer": -1}),
    ("artifact_begin", {"transfer": 1, "name": ["x"], "description": None}),
    ("artifact_begin", {"transfer": 1, "name": "x", "description": "d" * 5000}),
    ("artifact_read", {"name": "x", "version": 0, "start": 1 << 63, "length": 1 << 63}),
    ("artifact_read", {"name": "p.txt", "version": None, "start": -1, "length": 1}),
):
    try:
        print("answered", method, questions.ask(method, params))
    except questions.Refused:
        pass
for transfer in range(6):
    try:
        questions.ask("artifact_begin", {"transfer": transfer, "name": "t%d" % transfer, "description": None})
    except questions.Refused as error:
        print(transfer, error)
