"""Compiles the standard library of the image that it runs in, or the folder that it is given, and writes the result to standard output as an archive.

It reads its own limits from standard input, `-` for none. The archive of an image that has compiled modules is empty. Only for images: no user code runs in this process.
"""

import importlib.util
import io
import marshal
import os
import resource
import sys
import tarfile

# What programs do not import: tests, and what needs a screen or a network.
SKIPPED = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
               "tests", "tkinter", "turtledemo"}


def limit_self(line):
    for name, value in zip(("DATA", "AS", "NPROC"), line.split()):
        if value != "-":
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (int(value), int(value)))


def compiled(source, path):
    # Sources in a read-only root do not change, so the check against the source is turned off.
    code = compile(source, path, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + importlib.util.source_hash(source) + marshal.dumps(code)


def modules(library):
    for folder, folders, files in os.walk(library):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("config-"))
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


def main():
    limit_self(sys.stdin.readline())
    library = sys.argv[1] if sys.argv[1:] else os.path.realpath(os.path.dirname(os.__file__))
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        if os.path.exists(importlib.util.cache_from_source(os.path.join(library, "argparse.py"))):
            return
        for path in modules(library):
            try:
                with open(path, "rb") as file:
                    content = compiled(file.read(), path)
            except (OSError, SyntaxError, ValueError):
                continue
            entry = tarfile.TarInfo(importlib.util.cache_from_source(path).lstrip("/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


main()
