# What user code has without import: a standard input that explains itself, and the names of the bridge.

import sys

import _io
from _collections_abc import Mapping

NO_INPUT = "input is not available in the sandbox: put the value into the code instead"


class NoInput(_io._TextIOBase):
    """sys.stdin until it is used. Where there is no input, reading it raises an error that says why; child processes have
    /dev/null.
    """

    encoding, errors, name, mode = "utf-8", "strict", "<stdin>", "r"

    def __init__(self, guest):
        self._guest = guest

    def _open(self):
        if not self._guest.has_input:
            raise EOFError(NO_INPUT)
        return self._guest.part("script").open_input()

    def read(self, *size):
        return self._open().read(*size)

    def readline(self, *size):
        return self._open().readline(*size)

    def readlines(self, *size):
        return self._open().readlines(*size)

    def __next__(self):
        return next(self._open())

    def readinto(self, buffer):
        return self._open().buffer.readinto(buffer)

    def read1(self, *size):
        return self._open().buffer.read1(*size)

    def reconfigure(self, **options):
        self._open().reconfigure(**options)

    def readable(self):
        return True

    def fileno(self):
        if self._guest.has_input:
            self._open()
        return 0

    def isatty(self):
        return False

    @property
    def buffer(self):
        return self._open().buffer if self._guest.has_input else self


class LazyModule(type(sys)):
    """A module whose source is compiled at the first use."""

    def __getattr__(self, name):
        # Tools that walk over sys.modules ask for names such as __file__, without using the module.
        if name[:2] == "__" and name != "__all__":
            raise AttributeError(name)
        self.__dict__["_guest"].load_runtime()
        return getattr(self, name)

    def __dir__(self):
        self.__dict__["_guest"].load_runtime()
        return dir(self)


class BridgeModule(type(sys)):
    """The module mcp. Servers are looked up at first use."""

    def __getattr__(self, name):
        guest = self.__dict__["_guest"]
        if name == "servers":
            import importlib

            return importlib.import_module("mcp.servers")
        if name == "MCPError":
            return guest.runtime.MCPError
        if name[:4] != "mcp_":
            raise AttributeError("module 'mcp' has no attribute %r" % name)
        try:
            return guest.part("servers").find(name[4:], alias_first=True)
        except guest.runtime.MCPError as error:
            raise AttributeError(str(error)) from None


class Servers(Mapping):
    """mcp_servers: the servers that this call may use, by name. Other servers can be looked up, but not called."""

    def __init__(self, guest):
        self._guest = guest

    def __getitem__(self, name):
        try:
            return self._guest.part("servers").find(name)
        except self._guest.runtime.MCPError as error:
            raise KeyError(str(error)) from None

    def __iter__(self):
        return iter(self._guest.part("servers").allowed() if self._guest.context[2:] else ())

    def __len__(self):
        return len(list(iter(self)))

    def __contains__(self, name):
        return name in list(iter(self))

    def __repr__(self):
        return "<the MCP servers of this call: %s>" % (", ".join(self) or "none")


class Inputs:
    """In: the code of the runs of this session by number; -1 is the last one."""

    def __init__(self, guest):
        self._guest = guest

    def __getitem__(self, number):
        sources = self._guest.sources
        cells = [name for name in sources if name[:6] == "<cell "]
        return sources["<cell %d>" % number if isinstance(number, int) and number >= 0 else cells[number]]

    def __len__(self):
        return len(list(iter(self)))

    def __iter__(self):
        return iter([text for name, text in self._guest.sources.items() if name[:6] == "<cell "])

    def __repr__(self):
        return repr(list(self))


class Outputs(dict):
    """Out: the values that the last runs showed, by the number of the run."""

    def __missing__(self, number):
        raise KeyError("Out has no value of run %r: it keeps the last ten, at present of %s" % (number, list(self) or "none"))


def make_names(guest):
    """Returns the names of the bridge for the user's namespace."""
    mcp = BridgeModule("mcp", "The user's MCP servers, and helpers of the bridge.")
    mcp.__path__ = []
    mcp._guest = guest
    mcp.mcp_servers = Servers(guest)
    mcp.runtime = runtime = LazyModule("mcp.runtime", "Helpers of the bridge; see capability_summary().")
    runtime._guest = guest
    sys.modules["mcp"], sys.modules["mcp.runtime"] = mcp, runtime

    def save_tool(function=None, *, example=None):
        """Saves a function: it is defined again in every later session."""
        return runtime.save_tool(function, example=example)

    def display(*objects, **options):
        """Shows objects: pictures as pictures, tables and other rich objects also in their rich form."""
        guest.part("display").display(*objects, **options)

    guest.no_input = sys.stdin = sys.__stdin__ = NoInput(guest)
    sys.argv = [""]
    if sys.path[:1] != [""]:
        # As at the prompt: the current working directory.
        sys.path.insert(0, "")
    return dict(
        runtime=runtime, mcp=mcp, mcp_servers=mcp.mcp_servers, LOADED_MCP_SERVERS=[], save_tool=save_tool, display=display,
        In=Inputs(guest), Out=Outputs(),
    )
