# Help on objects: `object?` and `object??`. `guest` is the interpreter.

import sys


def show_help(about, marks):
    import inspect

    frame = sys._getframe(1)
    if about[:1] == "%":
        return help_on_magic(about)
    names = {**vars(__import__("builtins")), **frame.f_globals, **frame.f_locals}
    if "*" in about:
        import fnmatch

        print("\n".join(sorted(fnmatch.filter(names, about))))
        return
    try:
        value = eval(compile(about, "<help>", "eval", 0, True), names)
    except Exception:
        print("Object `%s` not found." % about)
        return
    print("\n".join(described(inspect, value, marks == 2)))


def help_on_magic(about):
    magics = guest.part("magics")
    name = about.lstrip("%")
    function = getattr(magics, ("cell_" if about[:2] == "%%" else "line_") + name, None)
    if name not in magics.names("%%" if about[:2] == "%%" else "%"):
        print("Object `%s` not found." % about)
    else:
        print("%s: %s" % (about, (function and function.__doc__) or "as in IPython"))


def described(inspect, value, with_source):
    described = []
    if callable(value):
        try:
            name = getattr(value, "__name__", type(value).__name__)
            described.append("Signature: %s%s" % (name, inspect.signature(value)))
        except (TypeError, ValueError):
            pass
    described.append("Type:      %s" % type(value).__name__)
    if not callable(value) and not inspect.ismodule(value):
        text = repr(value)
        described.append("Value:     %s" % (text if len(text) <= 500 else text[:497] + "..."))
    source = None
    if with_source:
        try:
            source = inspect.getsource(value)
        except (TypeError, OSError):
            pass
    document = inspect.getdoc(value)
    if source is not None:
        described.append("Source:\n" + source.rstrip())
    elif document:
        described.append("Docstring:\n" + document)
    return described
