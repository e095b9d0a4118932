# Reports how user code failed: status, one line, traceback. Also defines saved tools, whose code may be broken before the
# cell starts. `guest` is the interpreter.

import os
import sys

# In characters. A frame of this kind has room for 4 MiB, and a character becomes six bytes at most.
LARGEST_TEXT = 512 * 1024
LARGEST_LINE = 2000
OURS = "<codebridge "
HEADER = "Traceback (most recent call last):\n"
WRITABLE = "/workspace", "/tmp", "/projects", "/dev/shm"
NO_NETWORK = "the sandbox has no network; call an MCP server (servers=[…]) to fetch data"
READ_ONLY = "only /workspace and /tmp are writable"
HOST_FILE = (
    "host files are not visible in the sandbox; the user can share a folder with `--share DIR`, "
    "which code reads at /shared/NAME, or copy a file in with `codebridge exec --in FILE`"
)
NO_SHARE = "hint: no folder is shared with the sandbox; the user can share one with `--share DIR`, which code reads at /shared/NAME"
# Folders of the sandbox in which a missing file is none of the host's.
OWN_FOLDERS = set("tmp workspace projects shared packages usr etc proc sys dev bin sbin lib lib64 run".split())
# Errors of a lookup that no name server answers, and of a connection without a route, as Linux numbers them.
NO_NAME = {-2, -3, -4, -5, -11}
NO_ROUTE = {100, 101, 113}
REFUSED, READ_ONLY_DISK = 13, 30
# Exceptions that are looked at for the cause of one.
MOST_CAUSES = 100


def outcome(error):
    """Returns the payload of the D frame and that of the T frame, which may be empty."""
    text = ""
    if isinstance(error, MemoryError):
        guest.forget_values()
    if type(error) is NameError and "mcp_" in describe(error):
        guest.part("servers").say_why_undefined(error)
    if isinstance(error, SystemExit):
        status, code, line = "exit", exit_code(error), ""
    elif isinstance(error, KeyboardInterrupt) and guest.interrupts.count:
        status, code, line = "interrupted", 130, describe(error)
        text = render(error)
    elif guest.is_preparing and isinstance(error, (guest.runtime.MCPError, OSError, ValueError)):
        # None of the code is to blame: there is no traceback.
        status, code, line = "refused", 1, " ".join(str(error).splitlines())
    else:
        status, code, line = "error", 1, describe(error)
        known = explain(error, line)
        if known:
            line, text = known
        else:
            text = render(error)
            hint_at_await(error, line)
            hint_at_host_file(error)
            if isinstance(error, ImportError):
                guest.part("packages").hint(error)
    return encode("%s %d\n%s" % (status, code, line)), encode(text)


# Failures that the sandbox causes: a line and the user's own frames say more than a page of a library's.


def explain(error, line):
    """Returns the line and the text for a failure that the sandbox causes; None for others."""
    try:
        if lacks_network(error):
            line = NO_NETWORK
        elif is_read_only(error):
            line = "%s: %s" % (line, READ_ONLY)
        else:
            if any(is_of_network(cause) for cause in causes(error, lambda cause: True)):
                guest.notices.append(NO_NETWORK)
            return None
        return line, own_frames(error) + line + "\n"
    except BaseException:
        # User code controls the attributes, and no memory may be left.
        return None


def lacks_network(error):
    """Whether a library failed because there is no network. What user code catches and raises itself is its own."""
    parts = getattr(error, "exceptions", None)
    if isinstance(parts, tuple) and parts:
        return all(lacks_network(part) for part in parts)
    return any(is_of_network(cause) for cause in causes(error, was_caught_in_a_library))


def causes(error, is_followed):
    """Returns an exception, what caused it, and what it wraps."""
    found, todo = [], [error]
    while todo and len(found) < MOST_CAUSES:
        cause = todo.pop()
        if not isinstance(cause, BaseException) or any(cause is other for other in found):
            continue
        if cause is not error and not is_followed(cause):
            continue
        found.append(cause)
        todo += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
    return found


def is_of_network(error):
    if not isinstance(error, OSError):
        return False
    return error.errno in (NO_NAME if type(error).__name__ == "gaierror" else NO_ROUTE)


def was_caught_in_a_library(error):
    """The traceback of an exception that was caught begins where that happened."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename.startswith(OURS):
        place = place.tb_next
    return place is None or not is_own(place.tb_frame.f_code.co_filename)


def is_own(file):
    return file in guest.sources or is_writable(file)


def is_writable(path):
    return any(path == folder or path.startswith(folder + "/") for folder in WRITABLE)


def is_read_only(error):
    if not isinstance(error, OSError):
        return False
    if error.errno != REFUSED:
        return error.errno == READ_ONLY_DISK
    if not isinstance(error.filename, (str, bytes)):
        return False
    path = os.path.abspath(os.fsdecode(error.filename))
    return not is_writable(path) and not was_to_run(error) and could_be_all_but_written(path)


def was_to_run(error):
    """Whether the error is of a program that was to be started: the kernel refuses both in the same words."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_name == "_execute_child":
            return True
        place = place.tb_next
    return False


def could_be_all_but_written(path):
    """Whether only writing can have been refused: reading and searching are allowed."""
    if os.path.lexists(path):
        reading = os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK
        return os.access(path, reading) and not os.access(path, os.W_OK)
    folder = os.path.dirname(path)
    return os.path.isdir(folder) and os.access(folder, os.X_OK) and not os.access(folder, os.W_OK)


def own_frames(error):
    """Returns the part of a traceback that is the user's own code."""
    import traceback

    show_sources()
    frames = traceback.TracebackException(type(error), error, error.__traceback__).stack
    frames[:] = [shown(frame) for frame in frames if is_own(frame.filename)]
    return "".join(frames.format())


# Hints at files of the host.


def hint_at_host_file(error):
    """Says once how files of the host get in, where code looks for one by its path there."""
    if type(error) is not FileNotFoundError or was_to_run(error):
        return
    try:
        hint = hint_at_file(os.fsdecode(error.filename))
    except Exception:
        # User code controls the attributes.
        return
    if hint and hint not in guest.hinted:
        guest.hinted.add(hint)
        guest.notices.append(hint)


def hint_at_file(path):
    if path.startswith("~"):
        return HOST_FILE
    if not path.startswith("/"):
        return hint_at_relative_file(path) if guest.shown_name else None
    parts = os.path.normpath(path).split("/")
    if parts[1] == "shared" and len(parts) > 2:
        shares = sorted(os.listdir("/shared")) if os.path.isdir("/shared") else []
        if not shares:
            return NO_SHARE
        known = ", ".join("/shared/" + name for name in shares)
        return None if parts[2] in shares else "hint: there is no /shared/%s; the shared folders are %s" % (parts[2], known)
    return None if parts[1] in OWN_FOLDERS else HOST_FILE


def hint_at_relative_file(path):
    """The sandbox of a command begins with an empty folder, where its user expects the own one."""
    folder = os.path.dirname(path)
    if not folder:
        return "hint: the file is not in the sandbox; copy it in with `--in %s`, or share its folder with `--share DIR`" % path
    if os.path.isdir(folder):
        return None
    return (
        "hint: the folder %s is not in the sandbox; share it with `--share %s`, which code reads at /shared/%s, or make it with "
        "os.makedirs" % (folder, folder, os.path.basename(folder))
    )


# Hints at a missing await.


def hint_at_await(error, line):
    """Adds a hint where an error says what a coroutine cannot do: an await is missing."""
    if isinstance(error, (TypeError, AttributeError)) and "coroutine" in line:
        # From 3.10 on an AttributeError keeps what it is about.
        values = [getattr(error, "obj", None), *guest.namespace.values()]
        unawaited = [value for value in values if type(value).__name__ == "coroutine" and id(value) not in guest.hinted]
        for coroutine in unawaited:
            # It has its hint now, and needs none when its name gets another value.
            guest.hinted.add(id(coroutine))
            guest.notices.append(await_hint(coroutine))
        if not guest.await_was_hinted:
            guest.notices.append("hint: a coroutine has no result until it is awaited: write await before the call")


def await_hint(coroutine):
    guest.await_was_hinted = True
    call = call_of(coroutine)
    return "hint: %s(...) was never awaited: write await %s(...)" % (call, call)


def call_of(coroutine):
    """Returns what made a coroutine, as the user wrote it: `client.send` for a method that is `Client.send`."""
    name = coroutine.__qualname__
    last = name.rpartition(".")[2]
    # A pattern of a name without end would take as long.
    if name.startswith("mcp_") or not last.isidentifier() or len(last) > 200:
        return name
    import re

    call = re.compile(r"(?<![\w.])(?<!def )((?:\w+\.)*%s)\s*\(" % last)
    for source in reversed(list(guest.sources.values())):
        found = call.search(source)
        if found:
            return found[1]
    return last


def encode(text):
    return text.encode("utf-8", "backslashreplace")


def exit_code(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        print(code, file=sys.stderr)
    except Exception:
        # User code controls the text and the stream.
        pass
    return 1


def describe(error):
    """Returns the last line of a traceback, with the first line of a message of several."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = "%s.%s" % (kind.__module__, name)
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        message = str(message).strip().partition("\n")[0]
    except BaseException:
        message = "<exception str() failed>"
    line = "%s: %s" % (name, message) if message else name
    return line if len(line) <= LARGEST_LINE else line[:LARGEST_LINE] + "..."


def render(error):
    """Returns the traceback as Python prints it, with the frames of user code and of what it called."""
    try:
        text = format_traceback(error)
    except BaseException as failure:
        # Probably no memory is left; user code may also have broken the modules that this needs.
        text = "%s\n(no traceback: %s)\n" % (describe(error), describe(failure))
    if len(text) > LARGEST_TEXT:
        half = LARGEST_TEXT // 2
        text = "%s\n... %d characters ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
    return text


def format_traceback(error):
    import traceback

    show_sources()
    show_syntax(error)
    summary = traceback.TracebackException(type(error), error, error.__traceback__)
    prune(summary, set())
    if is_cell(getattr(summary, "filename", None)):
        summary.filename = guest.shown_name
    text = "".join(summary.format())
    if not summary.stack and text.startswith(HEADER):
        text = text[len(HEADER) :]
    return text


def show_sources():
    for name in list(guest.sources):
        # User code may have removed them from the cache.
        guest.show_source(name)


def show_syntax(error):
    """Adds the source line to errors that the compiler finds after parsing."""
    if isinstance(error, SyntaxError) and error.text is None and error.filename in guest.sources:
        lines = guest.sources[error.filename].splitlines()
        if error.lineno and error.lineno <= len(lines):
            error.text = lines[error.lineno - 1]


def prune(summary, seen):
    if summary is None or id(summary) in seen:
        return
    seen.add(id(summary))
    kept, is_hidden = [], False
    for frame in summary.stack:
        # What we call to run a file is ours as well.
        is_hidden = frame.filename.startswith(OURS) or is_hidden and frame.filename.endswith(("runpy>", "/runpy.py"))
        if not is_hidden:
            kept.append(shown(frame))
    summary.stack[:] = kept
    for other in summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or ()):
        prune(other, seen)


def shown(frame):
    """Names code of the command line as Python does. Its source was looked up under its own name."""
    if is_cell(frame.filename):
        frame.filename = guest.shown_name
    return frame


def is_cell(name):
    """Whether code has another name in tracebacks."""
    return guest.shown_name is not None and isinstance(name, str) and name.startswith("<cell ")


def end_forked_child(error):
    """Ends a forked child that reached the end of the cell, as the end of a script would."""
    code = 0
    if isinstance(error, SystemExit):
        code = exit_code(error)
    elif error is not None:
        code = 1
        print(render(error), end="", file=sys.stderr)
    guest.flush_outputs()
    os._exit(code)


def define_tools():
    """Defines saved tools as part of the first cell. A broken one costs a notice; after an interrupt the next run goes on."""
    while guest.tools:
        name, _, source = guest.tools.pop(0).partition("\n")
        file = "<saved tool %s>" % name
        try:
            guest.add_source(file, source)
            code = compile(definition(name, source, file), file, "exec", 0, True)
            guest.define_mentioned(source, [code])
            exec(code, guest.namespace)
            guest.tool_names.add(name)
        except BaseException as error:
            guest.notices.append("The saved tool '%s' is broken and was skipped: %s" % (name, describe(error)))
            if isinstance(error, KeyboardInterrupt):
                raise


def definition(name, source, file):
    """Parses a saved tool. Code in a session can save any text, which must not run in all later sessions."""
    import _ast

    tree = compile(source, file, "exec", _ast.PyCF_ONLY_AST, True)
    if [(type(node), getattr(node, "name", None)) for node in tree.body] not in (
        [(_ast.FunctionDef, name)],
        [(_ast.AsyncFunctionDef, name)],
    ):
        raise ValueError("it is not a single function definition of that name")
    return tree
