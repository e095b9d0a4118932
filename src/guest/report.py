# How user code that ended otherwise than well is told about: status, one line, traceback. Also saved tools, which are
# code that may be broken before the cell even starts. `guest` is the interpreter.

import os
import sys

# In characters. A frame of this kind has room for 4 MiB, and a character becomes six bytes at most.
LARGEST_TEXT = 512 * 1024
LARGEST_LINE = 2000
OURS = "<codebridge "
HEADER = "Traceback (most recent call last):\n"


def outcome(error):
    """The payload of the D frame and that of the T frame, which may be empty."""
    text = ""
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
    """Whoever forgot to await something is told by Python what a coroutine cannot do."""
    if isinstance(error, (TypeError, AttributeError)) and "coroutine" in line:
        guest.notices.append("did you forget await? What a coroutine returns is there once it has been awaited.")
        for value in list(guest.namespace.values()):
            if type(value).__name__ == "coroutine":
                # Said now, and so not again when its name gets another value.
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
        # Its text, or the stream, is user code's.
        pass
    return 1


def describe(error):
    """The last line of a traceback, without the lines that a long message has more."""
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
    """The traceback as Python prints it, with the frames of user code and of what it called."""
    try:
        text = format_traceback(error)
    except BaseException as failure:
        # Most likely there is no memory left; user code may also have broken the modules that this needs.
        text = "%s\n(no traceback: %s)\n" % (describe(error), describe(failure))
    if len(text) > LARGEST_TEXT:
        half = LARGEST_TEXT // 2
        text = "%s\n... %d characters ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
    return text


def format_traceback(error):
    import traceback

    for name in list(guest.sources):
        # Again, because user code may have dropped them from the cache.
        guest.show_source(name)
    show_syntax(error)
    told = traceback.TracebackException(type(error), error, error.__traceback__)
    prune(told, set())
    text = "".join(told.format())
    if not told.stack and text.startswith(HEADER):
        text = text[len(HEADER) :]
    return text


def show_syntax(error):
    """The compiler knows no text for what it found after parsing."""
    if isinstance(error, SyntaxError) and error.text is None and error.filename in guest.sources:
        lines = guest.sources[error.filename].splitlines()
        if error.lineno and error.lineno <= len(lines):
            error.text = lines[error.lineno - 1]


def prune(told, seen):
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(OURS)]
    for other in told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ()):
        prune(other, seen)


def end_forked_child(error):
    """A forked child that came to the end of the cell ends as a script would."""
    code = 0
    if isinstance(error, SystemExit):
        code = exit_code(error)
    elif error is not None:
        code = 1
        print(render(error), end="", file=sys.stderr)
    guest.flush_outputs()
    os._exit(code)


def define_tools():
    """Before the first cell, as part of it. A broken tool costs a notice; after an interrupt the next run has the rest."""
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
    """The syntax of a saved tool. Any code in a session can have any text saved, which must not run in all later ones."""
    import _ast

    tree = compile(source, file, "exec", _ast.PyCF_ONLY_AST, True)
    if [(type(node), getattr(node, "name", None)) for node in tree.body] not in (
        [(_ast.FunctionDef, name)],
        [(_ast.AsyncFunctionDef, name)],
    ):
        raise ValueError("it is not one function definition of that name")
    return tree
