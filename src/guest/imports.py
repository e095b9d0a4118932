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


def give_main_a_file(spawn):
    """Lets processes of the other start methods import the script, whose file is on the host."""
    find = spawn.get_preparation_data

    def get_preparation_data(name):
        data = find(name)
        if guest.script and data.get("init_main_from_path") == guest.part("script").main_path():
            guest.part("script").write_main(data)
        return data

    get_preparation_data.__doc__ = find.__doc__
    spawn.get_preparation_data = get_preparation_data


def end_broken_pools(pool):
    """Ends a pool whose processes cannot import the main module, or do not find a function in it: the pool would start
    others without end, or wait for ever."""
    kind = pool.Pool
    maintain, handle = kind._maintain_pool, kind._handle_workers.__func__

    def maintain_pool(context, process, count, workers, *rest):
        method = context.get_start_method()
        if method != "fork" and any(worker.exitcode == 1 for worker in workers):
            raise BrokenPool(method)
        maintain(context, process, count, workers, *rest)

    def handle_workers(cls, jobs, tasks, *rest):
        try:
            return handle(cls, jobs, tasks, *rest)
        except BrokenPool as broken:
            error = RuntimeError(broken_pool(str(broken)))
        import time

        thread = pool.threading.current_thread()
        while thread._state == pool.RUN or (jobs and thread._state != pool.TERMINATE):
            # Also those that are given to it later.
            for job in list(jobs.values()):
                fail_job(job, error)
            time.sleep(0.05)
        tasks.put(None)

    kind._maintain_pool = staticmethod(maintain_pool)
    kind._handle_workers = classmethod(handle_workers)


class BrokenPool(Exception):
    """A process of a pool failed outside of a task; the text is the start method."""


def broken_pool(method):
    if guest.script:
        why = "imports the script: start them under if __name__ == '__main__':"
    else:
        why = "is a new Python without the functions and variables of this code: give it functions of a module"
    return (
        "a process of the pool ended with exit status 1, and what it was given is lost. With the start method '%s' each process "
        "%s, or use multiprocessing.get_context('fork')" % (method, why)
    )


def fail_job(job, error):
    job._cache.pop(job._job, None)
    if hasattr(job, "_event"):
        job._success, job._value = False, error
        if job._error_callback:
            job._error_callback(error)
        job._event.set()
        return
    # An iterator of results.
    with job._cond:
        job._items.append((False, error))
        job._index += 1
        job._length = job._index
        job._cond.notify()


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


def report_rich_bars(progress):
    """Reports the bars of rich as progress: where there is no terminal, it prints them only when they end."""
    kind = progress.Progress
    render = kind.get_renderable

    def get_renderable(self):
        try:
            if not self.console.is_terminal or self.console.is_dumb_terminal:
                report_bar(self, progress.Text.from_markup)
        except Exception:
            # It is a convenience; in a child process there is nobody to report to.
            pass
        return render(self)

    get_renderable.__doc__ = render.__doc__
    kind.get_renderable = get_renderable


def report_bar(bars, parse):
    """Reports the first bar that has not ended, else the last one, if it has changed."""
    tasks = [task for task in bars.tasks if task.visible]
    task = next((task for task in tasks if not task.finished), tasks[-1])
    state = {"done": task.completed, "total": task.total, "message": parse(task.description).plain}
    if vars(bars).get("_reported") != state:
        bars._reported = state
        guest.part("questions").ask("progress", state)


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
    "multiprocessing.spawn": give_main_a_file,
    "multiprocessing.pool": end_broken_pools,
    "asyncio.events": let_cells_get_the_loop,
    "threading": show_thread_failures,
    "matplotlib.backends.backend_agg": lambda module: guest.part("display").adjust_agg(module),
    "plotly.basedatatypes": lambda module: guest.part("display").adjust_plotly(module),
    "rich.progress": report_rich_bars,
    "IPython.core.display_functions": lambda module: guest.part("display").adjust_ipython(module),
}
