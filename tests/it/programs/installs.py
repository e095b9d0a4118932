# %% install
import os, sys
added = runtime.install("humanize", "msgpack")
import humanize, msgpack, msgpack._cmsgpack
print([text.split()[0] for text in added], humanize.naturalsize(10**9), msgpack.unpackb(msgpack.packb([1])))
print(humanize.__file__, os.path.exists(humanize.__cached__), msgpack._cmsgpack.__file__.startswith("/packages/"))

# %% sealed
for attempt in (
    lambda: open("/packages/x.py", "w"),
    lambda: open(humanize.__file__, "a"),
    lambda: os.unlink(humanize.__file__),
    lambda: os.mkdir("/packages/x"),
    lambda: os.chmod(humanize.__file__, 0o777),
    lambda: os.rename("/packages/humanize", "/packages/y"),
):
    try:
        attempt()
        print("done")
    except OSError as error:
        print(error.errno in (1, 13, 30))

# %% refusals
def refusal(*requirements):
    try:
        return runtime.install(*requirements)
    except runtime.MCPError as error:
        return str(error)

# %% asked_by_hand
def by_hand(**changes):
    packages = runtime._guest.part("packages")
    question = {"requirements": ["humanize"], "python": packages.about_python(), "present": {}}
    question.update(changes)
    try:
        return runtime._ask("install", question)["packages"]
    except runtime.MCPError as error:
        return str(error)

python = runtime._guest.part("packages").about_python()
print(by_hand(python=dict(python, version="3.14.0 --index-url=x")))
print(by_hand(python=dict(python, machine="../../etc")))
print(by_hand(requirements="humanize"))
print(by_hand(present={"a\n--index-url=x": "1", "b": "2\n-e .", "-r": "1"}, requirements=["no-such-package-of-ours"]))
print(by_hand(requirements=["x" * 100_000]))

# %% script
# /// script
# requires-python = ">=3.9"
# dependencies = ["humanize"]
# [tool.uv]
# index-url = "http://127.0.0.1:9/simple"
# ///
import humanize
print(humanize.intcomma(1000))

# %% shadows
import importlib, json, os, sys
added = runtime.install("shadow")
import shadow
print(added, shadow.value)
print(json.__file__.startswith("/packages"), importlib.import_module("csv").__file__.startswith("/packages"))
print(os.path.exists("/workspace/pth-ran"), os.path.exists("/workspace/sitecustomize-ran"), runtime.install.__module__)
import runtime as other
print(other.value, callable(runtime.install))

# %% children
import os, subprocess, sys
print(os.environ.get("PYTHONPATH"))
runtime.install("plain")
program = "import plain; print(plain.value)"
with open("x.py", "w") as file:
    file.write(program)
runs = [subprocess.run([sys.executable] + words, capture_output=True, text=True) for words in (["-c", program], ["x.py"])]
print(*[run.stdout.strip() or run.stderr for run in runs])
!{sys.executable} -c "import plain; print(plain.value)"

# %% secrets
import os
found = [name for name, value in os.environ.items() if "correct-horse" in value]
for folder, _, names in os.walk("/packages"):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            if b"correct-horse" in file.read() or b"127.0.0.1" in open(file.name, "rb").read():
                found.append(name)
print(found)
