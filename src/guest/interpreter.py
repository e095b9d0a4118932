# The interpreter: the process that runs user code, in its real `__main__`, one cell after the other.
# This part is what every session needs; the others are compiled at first use, because each line that is compiled before
# the first result delays it.

import os
import sys

import _io

PROTOCOL = 1
SOFTWARE_FAILURE = 70
LARGEST_NOTICE = 4000
ONLY_AST, TOP_LEVEL_AWAIT, FUTURE_ANNOTATIONS, IS_COROUTINE = 0x400, 0x2000, 0x1000000, 0x80
# Methods of objects that have more than their text: Jupyter's display protocol.
RICH = "_ipython_display_", "_repr_mimebundle_", *("_repr_%s_" % form for form in ("html", "png", "jpeg", "svg", "markdown", "latex", "json"))
# Names in the code of a cell itself, not of its functions.
WANTS_LOOP = {"create_task", "ensure_future", "get_running_loop", "gather"}
HAS_OWN_LOOP = {"run_until_complete", "run_forever", "Runner"}
# imports.py says what happens to these modules when user code imports them.
WATCHED_IMPORTS = {
    "linecache", "inspect", "warnings", "multiprocessing.context", "multiprocessing.connection",
    "multiprocessing.spawn", "multiprocessing.pool",
    "matplotlib", "matplotlib.backends.backend_agg", "IPython.core.display_functions",
    "plotly.basedatatypes", "asyncio.events", "rich.progress",
}
if sys.version_info < (3, 13):
    WATCHED_IMPORTS.add("threading")


# Audit events of child processes, which may read standard input, and how code reads it past sys.stdin.
STARTS_CHILD = {"subprocess.Popen", "os.system", "os.posix_spawn"}
READS_INPUT = "open(0", "read(0", "/dev/stdin", "/dev/fd/0"
# Values of cells that are kept, and types whose values are too small to matter.
MOST_VALUES = 10
SMALL = {int, float, bool}

# Settings of limits that the interpreter sets on itself.
LIMITS = {"data": "RLIMIT_DATA", "address_space": "RLIMIT_AS", "processes": "RLIMIT_NPROC", "descriptors": "RLIMIT_NOFILE",
          "core": "RLIMIT_CORE", "messages": "RLIMIT_MSGQUEUE"}
# Memory kept from user code where the address space is limited, so that the failure of a cell that took all memory can be
# reported. The largest size that is available is used; it costs addresses, not pages.
RESERVES = 8 << 20, 4 << 20, 2 << 20, 1 << 20


class ImportWatch:
    """First on sys.meta_path: has a few modules adjusted once they are imported."""

    def __init__(self, guest):
        self.guest = guest

    def find_spec(self, name, path=None, target=None):
        if name[:11] == "mcp.servers" and name[11:12] in ("", ".") or name[:8] == "mcp.mcp_":
            return self.guest.part("servers").find_spec(name)
        notebook = name[:7] == "IPython"
        if name not in WATCHED_IMPORTS and not notebook:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                return self.guest.part("imports").adjusted(spec) if name in WATCHED_IMPORTS else spec
        if notebook:
            return self.guest.part("display").find_shim(name)


class OutputBuffer(_io.BufferedWriter):
    """Cannot be closed: code that wraps it in a text stream of its own, and drops that, would close it for all."""

    def close(self):
        self.flush()


class Interpreter:
    def __init__(self, down, up, out, err, settings):
        self.pid = os.getpid()
        # The number of the run, 0 between runs.
        self.current = 0
        self.settings = settings
        self.channel = load("channel").Channel(down, up)
        self.cell_name = None
        self.interrupts = load("interrupts").Interrupts(Interpreter.execute.__code__)
        self.parts, self.part_sources = {}, part_sources
        # The folder of the start; whether this process is replaced when the cell ends.
        self.folder, self.wants_reset = os.getcwd(), False
        # The session's event loop, once a cell has awaited something.
        self.loop = None
        # File name in tracebacks -> text, of cells and saved tools.
        self.sources = {}
        self.future_flags = 0
        # The context of the coming run, and the one that LOADED_MCP_SERVERS shows.
        self.context = self.shown_context = b""
        self.shows_servers = False
        # Saved tools: those that are not yet defined, and the names of the others.
        self.tools, self.tool_names = [], set()
        # The file of the code, as the command line named it; the name that tracebacks have for code of the command line without
        # a file; whether there is standard input; whether the host has a journal of steps.
        self.script, self.shown_name, self.has_input, self.is_workflow = None, None, False, False
        # What is done before the code of a cell; whether that is going on.
        self.before_cell, self.is_preparing = None, False
        # Notices for the result of this run; ids of coroutines that already have one.
        self.notices, self.hinted = [], set()
        # Whether a notice of this cell names a coroutine that was not awaited.
        self.await_was_hinted = False
        self.reserve = b""
        self.saved_outputs = {1: out, 2: err}
        # Python's own streams are on other descriptors.
        self.outputs = {}
        self.open_output(1, "stdout")
        self.open_output(2, "stderr")
        self.namespace = sys.modules["__main__"].__dict__
        self.bridge_names = load("namespace").make_names(self)
        self.runtime = self.bridge_names["runtime"]
        self.out = self.bridge_names["Out"]
        self.namespace.update(self.bridge_names)
        self.initial_names = frozenset(self.namespace)

    def part(self, name):
        """Returns another part of the guest, compiled at first use."""
        if name not in self.parts:
            with self.interrupts:
                # Two threads may both compile it; one result is kept.
                self.parts.setdefault(name, load(name, guest=self))
        return self.parts[name]

    def load_runtime(self):
        with self.interrupts:
            load("runtime", self.runtime, _guest=self)
            self.runtime.__class__ = type(sys)

    # The life of the process.

    def serve(self, resumed=None):
        try:
            self.prepare()
            if resumed is None:
                hello = "protocol=%d python=%d.%d.%d" % (PROTOCOL, *sys.version_info[:3])
                self.channel.send((b"H", 0, hello.encode()))
            else:
                self.part("reset").resume(resumed)
            while True:
                kind, number, payload = self.next_frame()
                if kind == b"R":
                    self.run(number, payload.decode("utf-8", "replace"))
                elif kind == b"C":
                    self.context = payload
                elif kind == b"Z":
                    self.start_script(payload)
                elif kind == b"L":
                    if number:
                        self.load_ahead()
                    self.channel.send((b"L", number, b""))
                elif kind == b"S":
                    self.tools.append(payload.decode("utf-8", "replace"))
        except BaseException:
            # A bug of ours, or no memory for the bookkeeping: the session cannot go on.
            sys.__excepthook__(*sys.exc_info())
            os._exit(SOFTWARE_FAILURE)

    def load_ahead(self):
        """Loads what code that awaits something needs: it takes longer than all other parts of a start."""
        try:
            self.part("event_loop")
        except Exception:
            # The code that needs it will say why.
            pass

    def start_script(self, description):
        if description == b"-":
            sys.argv, self.shown_name = ["-"], "<stdin>"
        elif description:
            self.part("script").prepare(description)
        else:
            sys.argv, self.shown_name = ["-c"], "<string>"
            self.offer_input()

    def offer_input(self):
        """From here on there is standard input. It is opened when it is used: what nobody reads is for the next program."""
        self.has_input = True
        sys.addaudithook(self.open_input_for_child)

    def open_input_for_child(self, event, _):
        if event in STARTS_CHILD and os.getpid() == self.pid:
            self.part("script").open_input()

    def prepare(self):
        self.interrupts.reset()
        os.register_at_fork(after_in_child=self.forget_channel)
        sys.meta_path.insert(0, ImportWatch(self))
        # Some are imported at the start; linecache always is from 3.13 on, and needs nothing before there is a source.
        for name in WATCHED_IMPORTS.intersection(sys.modules) - {"linecache"}:
            self.part("imports").adjust(sys.modules[name])
        try:
            # When memory runs out, this process and its children are killed first, and process 1 can still report it.
            descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
            os.write(descriptor, b"1000")
            os.close(descriptor)
        except OSError:
            pass
        for key, limit in LIMITS.items():
            if key in self.settings:
                self.limit(limit, int(self.settings[key]))

    def limit(self, name, value):
        import resource

        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))

    def next_frame(self):
        channel = self.channel
        while not channel.inbox:
            if os.getpid() != self.pid:
                # A child forked in a background task; its parent goes on.
                os._exit(0)
            if self.loop is not None:
                self.loop.wait()
            elif channel.reader.acquire(False):
                try:
                    channel.read()
                finally:
                    channel.reader.release()
                channel.pass_on()
            else:
                questions = self.part("questions")
                questions.wait(questions.Waiter(channel.inbox))
        return channel.inbox.pop(0)

    def forget_channel(self):
        """Closes the channel in a forked child, which must neither read nor send frames of its parent."""
        channel = self.channel
        if channel.down >= 0:
            os.close(channel.down)
            os.close(channel.up)
            channel.down = channel.up = -1
            if self.loop is not None:
                # The descriptors of the loop belong to the parent as well.
                self.loop.stop_waiting()

    def end_interrupted_child(self):
        """Ends without output: the parent reports the interrupt, and a hundred tracebacks may need more memory than there is."""
        import _signal

        self.flush_outputs()
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        os.kill(os.getpid(), _signal.SIGINT)

    # One run.

    def run(self, number, source):
        self.restore_outputs()
        self.interrupts.begin()
        # From here on an interrupt is for this run.
        self.channel.send((b"B", number, b""))
        if "address_space" in self.settings:
            self.reserve_memory()
        self.current = number
        error = self.execute(number, source)
        self.current = 0
        self.reserve = b""
        self.interrupts.reset()
        if os.getpid() != self.pid:
            if isinstance(error, KeyboardInterrupt):
                self.end_interrupted_child()
            self.part("report").end_forked_child(error)
        status, text = b"ok 0\n", b""
        if error is not None:
            status, text = self.part("report").outcome(error)
            # Objects that go with it may still print.
            del error
        self.flush_outputs()
        notices = dict.fromkeys(self.notices)
        frames = [(b"N", number, notice[:LARGEST_NOTICE].encode("utf-8", "replace")) for notice in notices]
        self.notices.clear()
        self.await_was_hinted = False
        if text:
            frames.append((b"T", number, text))
        frames.append((b"D", number, status))
        if self.wants_reset:
            self.wants_reset = False
            frames.insert(0, (b"N", number, self.part("reset").replace(frames).encode()))
        self.channel.send(*frames)

    def reserve_memory(self):
        for size in RESERVES:
            try:
                self.reserve = bytes(size)
                return
            except MemoryError:
                pass

    def execute(self, number, source):
        """Returns the exception that the cell ended with. The only place where interrupts are raised."""
        interrupts = self.interrupts
        try:
            try:
                interrupts.armed = True
                if interrupts.pending:
                    raise KeyboardInterrupt
                self.evaluate(self.script or "<cell %d>" % number, source)
            finally:
                interrupts.armed = False
        except BaseException as error:
            return error

    def evaluate(self, name, source):
        self.cell_name = name
        try:
            self.evaluate_cell(name, source)
        except Exception:
            self.show_figures()
            raise
        self.show_figures()

    def show_figures(self):
        if "matplotlib._pylab_helpers" in sys.modules:
            self.part("display").show_figures()

    def evaluate_cell(self, name, source):
        for variable, value in self.bridge_names.items():
            # A deleted name comes back; a variable of the user under that name stays.
            self.namespace.setdefault(variable, value)
        if "LOADED_MCP_SERVERS" in source:
            self.shows_servers = True
        if self.shows_servers and self.shown_context is not self.context:
            self.namespace["LOADED_MCP_SERVERS"] = self.runtime.list_servers_sync()
            self.shown_context = self.context
        if self.context[2:]:
            # It is more than an empty object.
            self.part("servers").enter(self.context)
        if self.tools:
            self.part("report").define_tools()
        if self.has_input and any(words in source for words in READS_INPUT):
            self.part("script").open_input()
        self.is_preparing = True
        if self.before_cell is not None:
            self.before_cell()
        # A warning is shown again in each cell.
        self.namespace.pop("__warningregistry__", None)
        if "with" in self.settings:
            self.part("packages").install_named()
        if "# /// script" in source:
            self.part("packages").install_script(source)
        self.is_preparing = False
        codes = self.compile_cell(name, source)
        self.define_mentioned(source, codes)
        if any(code.co_flags & IS_COROUTINE or self.starts_tasks(code) for code in codes):
            self.session_loop().run(codes)
        else:
            value = None
            for code in codes:
                value = eval(code, self.namespace)
            self.display(value)
        if sys.stdout is not self.outputs[1] and sys.stdout is not None:
            # The next run replaces it, so it has to be flushed now.
            sys.stdout.flush()

    def define_mentioned(self, source, codes):
        """Defines names that are looked up only for code that needs them."""
        if "mcp_" in source:
            self.part("servers").define_mentioned(codes)
        if "MCPError" in source:
            self.namespace.setdefault("MCPError", self.runtime.MCPError)

    def session_loop(self):
        if self.loop is None:
            self.loop = self.part("event_loop").SessionLoop()
        return self.loop

    def starts_tasks(self, code):
        """Whether a cell that awaits nothing needs the loop of the session, to leave tasks running in it."""
        return not WANTS_LOOP.isdisjoint(code.co_names) and HAS_OWN_LOOP.isdisjoint(code.co_names)

    def compile_cell(self, name, source):
        """Returns the code of the statements before a last expression, and that of the last expression, where there are any."""
        self.add_source(name, source)
        flags = self.future_flags | TOP_LEVEL_AWAIT
        try:
            tree = compile(source, name, "exec", flags | ONLY_AST, True)
        except SyntaxError as error:
            tree = self.part("notebook").parse(name, source, flags, error)
        import _ast

        last = tree.body.pop() if tree.body and type(tree.body[-1]) is _ast.Expr else None
        if last is not None and (self.script or ";" in source and self.ends_with_semicolon(name, last)):
            tree.body.append(last)
            last = None
        codes = []
        if tree.body:
            codes.append(compile(tree, name, "exec", flags, True))
            self.future_flags |= codes[0].co_flags & FUTURE_ANNOTATIONS
        if last is not None:
            codes.append(compile(_ast.Expression(last.value), name, "eval", flags, True))
        return codes

    def ends_with_semicolon(self, name, last):
        """Whether a semicolon follows the last expression: then its value is not shown."""
        line = self.sources[name].encode().splitlines()[last.end_lineno - 1]
        return line[last.end_col_offset :].lstrip()[:1] == b";"

    def add_source(self, name, source):
        self.sources[name] = source
        self.show_source(name)

    def show_source(self, name):
        """Shows a source to tracebacks, inspect and the debugger, if linecache is imported."""
        cache = getattr(sys.modules.get("linecache"), "cache", None)
        if cache is not None:
            text = self.sources[name]
            # A last line without its end would be odd to linecache, a time of change would make it look for the file.
            cache[name] = len(text), None, (text if text[-1:] == "\n" else text + "\n").splitlines(True), name

    def display(self, value):
        if getattr(type(value), "_is_nothing", False):
            value = None
        if value is not None:
            self.keep_value(value)
        if self.is_rich(value):
            import builtins

            self.part("display").display(value)
            builtins._ = value
            return
        sys.displayhook(value)
        if type(value).__name__ == "coroutine":
            self.hinted.add(id(value))
            self.notices.append(self.part("report").await_hint(value))

    def keep_value(self, value):
        """Keeps the value of a cell for `Out`, `__` and `___`. `_` is set where it is shown."""
        shared = sys.modules["builtins"].__dict__
        shared["___"], shared["__"] = shared.get("__", ""), shared.get("_", "")
        out = self.out
        out[self.current] = value
        if len(out) > MOST_VALUES:
            del out[next(iter(out))]
        if type(value) not in SMALL and len(out) > 1 and self.part("history").is_memory_short():
            self.forget_values()
            out[self.current] = value

    def forget_values(self):
        self.out.clear()
        sys.modules["builtins"].__dict__.update(dict.fromkeys(("_", "__", "___"), ""))

    def is_rich(self, value):
        """Whether a value has more than its text. Its type decides: objects that have every attribute have no such form."""
        kind = type(value)
        if kind.__module__ == "builtins" or sys.displayhook is not sys.__displayhook__:
            return False
        figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", ())
        return isinstance(value, figure) or any(hasattr(kind, method) for method in RICH)

    # The output streams, which user code may replace, close or take away the descriptors of.

    def open_output(self, number, name):
        raw = _io.FileIO(number, "w", False)
        raw.name = "<%s>" % name
        # Line by line, so that it streams, and that little is lost when the process ends.
        stream = _io.TextIOWrapper(OutputBuffer(raw), "utf-8", "backslashreplace", None, True)
        stream.mode = "w"
        self.outputs[number] = stream
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)

    def restore_outputs(self):
        for number, name in (1, "stdout"), (2, "stderr"):
            os.dup2(self.saved_outputs[number], number)
            # A child process may have changed this for all that share the pipe.
            os.set_blocking(number, True)
            stream = self.outputs[number]
            if getattr(sys, name, None) is not stream:
                setattr(sys, name, stream)
            try:
                stream.closed
            except ValueError:
                # Its buffer was detached.
                self.open_output(number, name)

    def flush_outputs(self):
        for number, stream in self.outputs.items():
            try:
                os.set_blocking(number, True)
                stream.flush()
            except (OSError, ValueError):
                # User code closed or removed it; the next run restores it.
                pass
        ctypes = sys.modules.get("ctypes")
        if ctypes is not None:
            self.part("imports").flush_c(ctypes)
