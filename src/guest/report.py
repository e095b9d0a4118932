# Reports how user code failed: status, one line, traceback. Also defines saved tools, whose code may be broken before the
# cell starts. `guest` is the interpreter.

import os
import sys

# In characters. A frame of this kind has room for 4 MiB, and a character becomes six bytes at most.
LARGEST_TEXT = 512 * 1024
LARGEST_LINE = 2000
OURS = "<codebridge "
HEADER = "Traceback (most recent call last):\n"


def outcome(error):
    """Returns the payload of the D frame and that of the T frame, which may be empty."""
    text = ""
    if type(error) is NameError and "mcp_" in describe(error):
        guest.part("servers").say_why_undefined(error)
    if isinstance(error, SystemExit):
        status, code, line = "exit", exit_code(error), ""
    elif isinstance(error, KeyboardInterrupt) and guest.interrupts.count:
        status, code, line = "interrupted", 130, describe(error)
        text = render(error)
    else:
        status, code, line = "error", 1, describe(error)
        text = render(error)
        hint_at_await(error, line)
    return encode("%s %d\n%s" % (status, code, line)), encode(text)


def hint_at_await(error, line):
    """Adds a hint where an error says what a coroutine cannot do: an await is missing."""
    if isinstance(error, (TypeError, AttributeError)) and "coroutine" in line:
        guest.notices.append("did you forget await? A coroutine has no result until it is awaited.")
        for value in list(guest.namespace.values()):
            if type(value).__name__ == "coroutine":
                # It has its hint now, and needs none when its name gets another value.
                guest.hinted.add(id(value))


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

    for name in list(guest.sources):
        # User code may have removed them from the cache.
        guest.show_source(name)
    show_syntax(error)
    summary = traceback.TracebackException(type(error), error, error.__traceback__)
    prune(summary, set())
    text = "".join(summary.format())
    if not summary.stack and text.startswith(HEADER):
        text = text[len(HEADER) :]
    return text


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
    summary.stack[:] = [frame for frame in summary.stack if not frame.filename.startswith(OURS)]
    for other in summary.__cause__, summary.__context__, *(getattr(summary, "exceptions", None) or ()):
        prune(other, seen)


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
