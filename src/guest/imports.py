# Adjusts modules of the standard library once user code has imported them, so that code without a file works like code in
# a file. `guest` is the interpreter.

import os
import sys


class AdjustingLoader:
    """Replaces the loader of a module until the module is executed."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        adjust(module)

    def __getattr__(self, name):
        return getattr(self.loader, name)


def adjusted(spec):
    if spec.name == "matplotlib":
        # The backend that draws pictures, without a search for a screen.
        os.environ.setdefault("MPLBACKEND", "agg")
        return spec
    spec.loader = AdjustingLoader(spec.loader)
    return spec


def adjust(module):
    try:
        ADJUSTMENTS[module.__name__](module)
    except Exception:
        # Another version of Python may be built differently: user code loses a convenience, not the module.
        pass


# Source text, for tracebacks, inspect and the debugger.


def show_sources(linecache):
    """Shows the sources of the cells so far; later ones are added one by one."""
    for name in list(guest.sources):
        guest.show_source(name)


def let_inspect_find_classes(inspect):
    """Lets inspect find classes of cells: a class has no code object that names its file, and `__main__` has no file."""
    find = inspect.getfile

    def getfile(object):
        try:
            return find(object)
        except (TypeError, OSError):
            name = file_of_class(object) if isinstance(object, type) else None
            if name is None:
                raise
            return name

    getfile.__doc__ = find.__doc__
    inspect.getfile = getfile
    if "servers" in guest.parts:
        guest.parts["servers"].sign_all()


def file_of_class(kind):
    if kind.__module__ != "__main__":
        return None
    for value in vars(kind).values():
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if code is not None and code.co_filename in guest.sources:
            return code.co_filename
    import ast

    for name, text in reversed(list(guest.sources.items())):
        if kind.__name__ in text and defines_class(ast, text, kind):
            return name


def defines_class(ast, text, kind):
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    # From 3.13 on a class knows its line, which tells two of the same name apart.
    line = vars(kind).get("__firstlineno__")
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if line is None or line == first:
                return True
    return False


# Hints.


def notice_unawaited(warnings):
    show = warnings._showwarnmsg

    def showwarnmsg(message):
        coroutine = getattr(message, "source", None)
        if type(coroutine).__name__ == "coroutine" and "never awaited" in str(message.message):
            if id(coroutine) in guest.hinted:
                # It was the last value of a cell, which has that hint.
                guest.hinted.discard(id(coroutine))
                return
            guest.notices.append(guest.part("report").await_hint(coroutine))
            return
        show(message)

    warnings._showwarnmsg = showwarnmsg


def prefer_fork(context):
    """Prefers fork: other start methods import the main module, and the functions of a session are in no file."""
    context._default_context._default_context = context._concrete_contexts["fork"]


def use_reachable_sockets(connection):
    """Lets managers use TCP where Unix sockets with names are refused: in sandboxes with shared folders."""
    try:
        connection.socket.socket(connection.socket.AF_UNIX).close()
    except PermissionError:
        connection.default_family = "AF_INET"


def let_cells_get_the_loop(events):
    """Has asyncio.get_event_loop() return the loop of the session in cells that do not run in it."""
    import _thread

    kind = getattr(events, "_BaseDefaultEventLoopPolicy", None) or events.BaseDefaultEventLoopPolicy
    find = kind.get_event_loop

    def get_event_loop(self):
        loop = self._local._loop
        if (loop is None or loop.is_closed()) and _thread.get_ident() == guest.interrupts.main and os.getpid() == guest.pid:
            guest.session_loop().open()
        return find(self)

    get_event_loop.__doc__ = find.__doc__
    kind.get_event_loop = get_event_loop


def show_thread_failures(threading):
    """Shows source lines in tracebacks of threads: before 3.13 the built-in hook reads files only."""
    default = threading.excepthook

    def excepthook(args):
        if args.exc_type is SystemExit or args.exc_value is None or sys.stderr is None:
            return default(args)
        name = args.thread.name if args.thread is not None else "?"
        text = guest.part("report").render(args.exc_value)
        print("Exception in thread %s:\n%s" % (name, text), end="", file=sys.stderr)

    threading.excepthook = excepthook


def flush_c(ctypes):
    """Flushes the buffers of C code that prints. They can be reached when ctypes is imported, as numpy does."""
    try:
        ctypes.CDLL(None).fflush(None)
    except (AttributeError, OSError):
        # Still being imported, or a C library without it.
        pass


ADJUSTMENTS = {
    "linecache": show_sources,
    "inspect": let_inspect_find_classes,
    "warnings": notice_unawaited,
    "multiprocessing.context": prefer_fork,
    "multiprocessing.connection": use_reachable_sockets,
    "asyncio.events": let_cells_get_the_loop,
    "threading": show_thread_failures,
    "matplotlib.backends.backend_agg": lambda module: guest.part("display").adjust_agg(module),
    "plotly.basedatatypes": lambda module: guest.part("display").adjust_plotly(module),
    "IPython.core.display_functions": lambda module: guest.part("display").adjust_ipython(module),
}
