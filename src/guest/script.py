# What a run of the command line has beside its code, as `python FILE ARGUMENTS` has it: arguments, modules beside the file,
# files for the working directory, and standard input. The host is asked for the last three. `guest` is the interpreter.

import json
import os
import sys

import _io
import _thread
from _frozen_importlib import ModuleSpec

CHUNK = 256 << 10
# Descriptors of ours are high, away from code that counts from 3 up.
HIGH = 900
PLACE = os.getcwd()
questions = guest.part("questions")


def raw(payload):
    """Reads an answer that is bytes, after a mark, or an error as JSON."""
    return {"ok": payload[1:]} if payload[:1] == b"=" else json.loads(payload)


def prepare(description):
    global modules
    given = json.loads(description)
    sys.argv = given["argv"]
    guest.is_workflow = given.get("workflow", False)
    if given["input"]:
        guest.offer_input()
    guest.shown_name = "<string>" if sys.argv[:1] == ["-c"] else "<stdin>"
    if given["file"]:
        guest.shown_name = guest.script = given["file"]
        # Nothing is there, but what code writes beside itself it can find again.
        guest.namespace["__file__"] = main_path()
        if given["modules"]:
            modules = ScriptModules(os.path.dirname(given["file"]), given["modules"])
            sys.meta_path.insert(0, modules)
    if given["files"]:
        guest.before_cell = lambda: receive_files(given["files"])


def main_path():
    """Returns the path of the script, where it would be."""
    return os.path.join(PLACE, os.path.basename(guest.script))


# Modules.

# Those beside the script, and a folder with the script and those of them that were imported.
modules, copies = None, None


class ScriptModules:
    """Finds the modules beside the script, before all others, as Python does."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, frozenset(names)
        # Packages that came from here.
        self.packages = set()
        self.sources = {}

    def find_spec(self, name, path=None, target=None):
        parent = name.rpartition(".")[0]
        if parent not in self.packages if parent else name not in self.names:
            return None
        found = questions.ask("module", {"name": name})
        if found is None:
            return None
        if found["is_package"] and not found["source"] and not parent:
            # A folder may be no package at all: others come first.
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    return spec
        spec = ModuleSpec(name, self, origin=os.path.join(PLACE, found["path"]), is_package=found["is_package"])
        spec.loader_state = os.path.join(self.folder, found["path"]), found["source"]
        spec.has_location = True
        self.sources[found["path"]] = found["source"]
        if found["is_package"]:
            self.packages.add(name)
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file, source = module.__spec__.loader_state
        guest.add_source(file, source)
        exec(compile(source, file, "exec", 0, True), module.__dict__)

    def get_source(self, name):
        return sys.modules[name].__spec__.loader_state[1]


def write_main(data):
    """Has a new interpreter find the script, and the modules beside it that were imported; `data` is what it is told."""
    global copies
    if copies is None:
        import tempfile

        copies = tempfile.mkdtemp(prefix="script-")
    main = os.path.basename(guest.script)
    for name, source in [*(modules.sources.items() if modules else ()), (main, guest.sources[guest.script])]:
        path = os.path.join(copies, name)
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="") as copy:
                copy.write(source)
    data["init_main_from_path"] = os.path.join(copies, main)
    data["sys_path"].insert(0, copies)


# Files.


def receive_files(files):
    guest.before_cell = None
    for index, file in enumerate(files):
        receive(index, **file)


def receive(index, name, bytes, is_executable, modified):
    path = os.path.join(PLACE, name)
    space = os.statvfs(PLACE)
    free = space.f_bavail * space.f_frsize
    if bytes > free:
        raise OSError(
            "could not copy %s into /workspace: it has %s, and %s are free; hint: give the sandbox a larger /workspace with "
            "--workspace-size SIZE, or share the folder with --share DIR" % (name, size(bytes), size(free))
        )
    mode = 0o755 if is_executable else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        received = 0
        while True:
            piece = questions.ask("file_in", {"index": index, "offset": received}, raw)
            if not piece:
                break
            received += write(descriptor, piece)
        if received != bytes:
            raise OSError("could not copy %s into /workspace: it changed meanwhile" % name)
        # With the old time, a change in the same tick of the clock can be told.
        os.utime(descriptor, ns=(modified, modified))
        status = os.fstat(descriptor)
        mark = status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino
        guest.channel.send((b"K", 0, b"%d %d %d %d " % mark + os.fsencode(name)))
    except BaseException:
        # Half a file is worse than none.
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def size(count):
    if count < 1024:
        return "%d B" % count
    for unit in "KiB", "MiB", "GiB":
        count /= 1024
        if count < 1024:
            break
    return "%.1f %s" % (count, unit)


def write(descriptor, data):
    data = memoryview(data)
    size = len(data)
    while data:
        data = data[os.write(descriptor, data) :]
    return size


# Standard input.

stream = None


def open_input():
    """Makes descriptor 0 a pipe with standard input, for child processes too. Returns sys.stdin."""
    global stream
    with guest.interrupts:
        if stream is not None:
            return stream
        import fcntl

        reader, writer = os.pipe()
        os.dup2(reader, 0)
        os.close(reader)
        end = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, HIGH)
        os.close(writer)
        # A child that holds it would never see the end of its input.
        os.register_at_fork(after_in_child=lambda: close(end))
        source = _io.FileIO(0, "r", False)
        source.name = "<stdin>"
        stream = _io.TextIOWrapper(_io.BufferedReader(source, CHUNK), "utf-8", "strict")
        stream.mode = "r"
        for name in "stdin", "__stdin__":
            if getattr(sys, name) is guest.no_input:
                setattr(sys, name, stream)
        _thread.start_new_thread(pump, (end,))
    return stream


def close(descriptor):
    try:
        os.close(descriptor)
    except OSError:
        pass


def pump(end):
    """Fills the pipe as fast as it is read."""
    try:
        while True:
            data = questions.ask("input", {"bytes": CHUNK}, raw)
            if not data:
                return
            write(end, data)
    except questions.Refused as refused:
        guest.notices.append(str(refused))
    except OSError:
        # Nobody reads it any more.
        pass
    finally:
        close(end)
