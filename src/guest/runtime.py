"""Helpers of the bridge; see capability_summary()."""

# The module mcp.runtime. `_guest` is the interpreter. Names that start with an underscore are not for user code.

__all__ = [
    "MCPArgumentError",
    "MCPAttributeError",
    "MCPError",
    "artifacts",
    "call_tool",
    "call_tool_sync",
    "capability_summary",
    "complete",
    "describe_server",
    "discovered_servers",
    "get_prompt",
    "install",
    "list_loaded_server_metadata",
    "list_prompts",
    "list_resource_templates",
    "list_resources",
    "list_saved_tools",
    "list_servers",
    "list_servers_sync",
    "list_tools",
    "list_tools_sync",
    "load_artifact",
    "output",
    "pages",
    "progress",
    "query_tool_docs",
    "query_tool_docs_sync",
    "read_resource",
    "reset",
    "runs",
    "save_artifact",
    "save_tool",
    "search_tool_docs",
    "search_tool_docs_sync",
    "step",
]


class MCPError(Exception):
    """A tool failed, a server is unavailable, or the bridge refused the request."""

    # What the tool returned, when the tool failed.
    result = None
    kind = None


class MCPArgumentError(MCPError, TypeError):
    """A tool does not take these arguments; it was not called."""


class MCPAttributeError(MCPError, AttributeError):
    """A server has no such tool."""


# Resources and prompts of servers.
_OFFERS = ("complete", "get_prompt", "list_prompts", "list_resource_templates", "list_resources", "read_resource")


def __getattr__(name):
    if name == "step":
        return _guest.part("steps").step
    if name in _OFFERS:
        return getattr(_guest.part("offers"), name)
    # The classes of results, so that they can be pickled and documented.
    values = _guest.part("values")
    for _, kind in values.KINDS:
        if kind.__name__ == name:
            return kind
    raise AttributeError("module 'mcp.runtime' has no attribute %r" % name)


def capability_summary():
    """Returns what this sandbox can do, its Python and packages, and the helpers of this module."""
    return "%s\n%s" % (_about_python(), _SUMMARY)


# Packages that decide how code is written, and the number that is named.
_MAIN_PACKAGES = (
    "numpy", "pandas", "polars", "scipy", "scikit-learn", "matplotlib", "pyarrow", "duckdb", "sympy", "networkx", "requests",
    "httpx", "beautifulsoup4", "lxml", "pillow", "openpyxl", "pyyaml",
)
_MOST_PACKAGES = 12


def _about_python():
    """Returns the version of Python and the main packages."""
    import sys

    found = _guest.part("packages").versions()
    for name in "pip", "setuptools", "wheel":
        found.pop(name, None)
    names = [name for name in _MAIN_PACKAGES if name in found] + sorted(found.keys() - set(_MAIN_PACKAGES))
    shown = ["%s %s" % (name, found[name]) for name in names[:_MOST_PACKAGES]]
    if len(names) > len(shown):
        shown.append("%d more" % (len(names) - len(shown)))
    python = "Python %d.%d.%d" % sys.version_info[:3]
    return "%s. Packages beside the standard library: %s." % (python, ", ".join(shown).strip() or "none")


_SUMMARY = """\
This is a Python session in a sandbox without network. Variables, imports, functions and files in /tmp and /workspace \
stay from call to call; `await` works at top level; the value of a last expression is shown; the output of child \
processes is captured like that of print. There is no input(). Notebook cells work: `!command`, `%%bash`, `%%writefile`, `%time`. Available without import: `runtime`, `mcp`, \
`mcp_servers`, `LOADED_MCP_SERVERS`, `save_tool` and `mcp_<alias>` of each server (also: from mcp import runtime). \
Tools of the user's MCP servers are called as `await mcp_<alias>.<tool>(argument=value)`; the call of run_python has to \
name the servers that it uses: servers=["github"], or ["*"] for any. Documentation can be read without naming them. \
Results are values: JSON as objects whose fields are also attributes, text as str, images as bytes; `.raw` is the MCP \
result (not on True, False and None). A tool that fails raises MCPError (also runtime.MCPError).

- await runtime.search_tool_docs(query, limit=5, detail="summary"): the tools that fit best, of all servers, and saved \
functions (kind "saved function"), which are called as they are
- runtime.discovered_servers(detailed=False): names of all servers, with detailed=True also their descriptions
- await runtime.query_tool_docs(server, tool=None, detail="summary"|"full"): the tools of a server, or one of them
- runtime.describe_server(name), await runtime.list_tools(server): everything about a server, its tools
- await runtime.list_servers(), runtime.list_loaded_server_metadata(): the servers that this call may use
- await runtime.call_tool(server, tool, arguments): a tool by name
- runtime.list_resources(server), runtime.read_resource(server, uri), runtime.list_prompts(server), \
runtime.get_prompt(server, name, arguments): what servers offer beside tools; also runtime.list_resource_templates(server), \
runtime.complete(server, prompt, argument, value)
- async for page in runtime.pages(tool, **arguments): the results of a tool of an OpenAPI server, page by page
- The awaited functions also exist without await: search_tool_docs_sync, query_tool_docs_sync, list_tools_sync, \
list_servers_sync, call_tool_sync
- runtime.output(run_id, stream="stdout", start=0, length=None): the output of an earlier run ("stdout", "stderr" or "traceback"), all or a part
- runtime.save_artifact(source, name=None, description=None): keeps a file for the user and for later sessions: a path, bytes, \
text, a figure, a data frame, a file object or an iterator of bytes
- runtime.artifacts(), runtime.load_artifact(name, path=None): what is kept; its bytes, or written to a path
- runtime.save_tool(function, example=None), also @save_tool: saves a function; it is defined again in every later session
- runtime.list_saved_tools(): names of the saved functions
- runtime.install("polars", "httpx>=0.27"): installs packages, if the operator allows it
- runtime.progress(done, total=None, message=None): reports the progress of this code
- runtime.runs(): the runs in the background
- await runtime.step(name, function, *arguments): a step of a workflow (`codebridge workflow run`), which is not repeated when it \
is resumed; runtime.step.options(retries=3, timeout=60, key=None)(name, function, ...)
- runtime.reset(): replaces the interpreter when this code ends; files stay
- runtime.capability_summary(): this text
"""


def output(run_id, stream="stdout", start=0, length=None):
    """Returns the output of run `run_id` on "stdout" or "stderr", or its "traceback": `length` bytes from byte `start` on, or the rest."""
    if stream not in ("stdout", "stderr", "traceback"):
        raise ValueError("stream must be 'stdout', 'stderr' or 'traceback', not %r" % (stream,))
    for name, number in (("run_id", run_id), ("start", start), ("length", length)):
        if number is not None and (type(number) is not int or number < 0):
            raise ValueError("%s must be a whole number, not %r" % (name, number))
    pieces = []
    while True:
        piece = _ask("output", {"run_id": run_id, "stream": stream, "start": start, "length": length})
        pieces.append(piece["text"])
        if piece["last"]:
            return "".join(pieces)
        # The host sends long output in pieces.
        if length is not None:
            length -= piece["end"] - start
        start = piece["end"]


class _Ready:
    """A value that can also be awaited."""

    def __await__(self):
        return self
        yield


class _ReadyList(_Ready, list):
    pass


class _ReadyDict(_Ready, dict):
    pass


class _ReadyBytes(_Ready, bytes):
    pass


class _ReadyText(_Ready, str):
    def __repr__(self):
        return str(self)


def reset():
    """Replaces the interpreter when this code ends: variables, imports and threads are gone, files stay. Works with and without await."""
    _guest.wants_reset = True
    return _ReadyText("The next call gets a fresh interpreter; files stay.")


def save_tool(function=None, *, example=None):
    """Saves a function: it is defined again in every later session, also after a restart.

    Returns a confirmation; as a decorator, the function. The function must not depend on the session: it imports what it
    uses. `example` is code that raises an error if the function does not work; `codebridge saved test` runs it.
    """
    if function is None:
        return lambda function: save_tool(function, example=example)
    return _guest.part("saved").save(function, example)


def list_saved_tools():
    """Returns the names of all saved functions. Those that another session saved meanwhile are defined in the next session."""
    return _ask("list_saved_tools", {})



# Artifacts.


class _Artifact(_ReadyDict):
    """One version of an artifact."""

    def __repr__(self):
        return "<artifact %s, version %d, %d bytes>" % (self["name"], self["version"], self["bytes"])


def save_artifact(source, name=None, description=None):
    """Keeps a file for the user and for later sessions: a path, bytes, text, a figure, an image, a data frame, a file object or an iterator of bytes.

    A name that is used again gets a new version. Works with and without await.
    """
    return _guest.part("artifacts").save(source, name, description)


def artifacts():
    """Returns what is kept, the latest version of each name: name, version, bytes, mimeType, sha256, description, created, uri."""
    return _ReadyList(_guest.part("artifacts").listed())


def load_artifact(name, path=None, version=None):
    """Returns the bytes of an artifact, or writes them to a path and returns that. Works with and without await."""
    loaded = _guest.part("artifacts").load(name, path, version)
    return _ReadyBytes(loaded) if path is None else _ReadyText(loaded)


# Long runs.


class _Nothing:
    """None, also for code that awaits it."""

    # It is not shown as the value of a last expression.
    _is_nothing = True

    def __await__(self):
        return iter(())

    def __repr__(self):
        return "None"

    def __bool__(self):
        return False


def progress(done, total=None, message=None):
    """Reports the progress of this code, which the user and run_python(run=N) see. Works with and without await."""
    for name, number in (("done", done), ("total", total)):
        if isinstance(number, bool) or not (isinstance(number, (int, float)) or (number is None and name == "total")):
            raise TypeError("%s must be a number, not %r" % (name, number))
        if number != number or number in (float("inf"), float("-inf")):
            raise ValueError("%s must be a finite number, not %r" % (name, number))
    message = None if message is None else str(message)[:_LONGEST_PROGRESS]
    _ask("progress", {"done": done, "total": total, "message": message})
    return _Nothing()


_LONGEST_PROGRESS = 200


def runs():
    """Returns the runs in the background: run, session, status, seconds and progress of each. Works with and without await."""
    return _ReadyList(_ask("runs", {}))


# Packages.


def install(*requirements, upgrade=False):
    """Installs packages, if the operator allows it, which can be imported at once. Returns what was added. Works with and without await."""
    return _ReadyList(_guest.part("packages").install(requirements, upgrade))


# Servers and their tools.


class _Docs(list):
    """Documentation of tools: a list that can also be read as docs["tools"]."""

    def __getitem__(self, key):
        return list(self) if key == "tools" else list.__getitem__(self, key)


class _Tool(dict):
    """One tool of a list. Values that occur twice are printed once, because the reader pays for each word."""

    def __repr__(self):
        shown = self.get("server"), self.get("tool")
        repeated = [key for key in ("name", "serverAlias", "toolAlias") if self.get(key) in shown]
        return repr({key: value for key, value in self.items() if key not in repeated})


class _Doc(dict):
    """Documentation of one tool, which can also be read as doc["tools"]."""

    def __missing__(self, key):
        if key == "tools":
            return [self]
        raise KeyError(key)


def discovered_servers(detailed=False):
    """Returns the names of all servers; with detail, name and description of each. Works with and without await."""
    if detailed:
        found = _ask("servers", {"detailed": True})
        return _ReadyList({"name": one["name"], "description": one["description"]} for one in found)
    return _ReadyList(one["name"] for one in _ask("servers", {}))


async def list_servers():
    """Returns the names of the servers that this call may use."""
    return list_servers_sync()


def list_servers_sync():
    """Returns the names of the servers that this call may use."""
    return _guest.part("servers").allowed() if _guest.context[2:] else []


def describe_server(name):
    """Returns name, alias, description, folder and tools of a server, by its name or alias."""
    return _ReadyDict(_ask("describe", {"server": _name(name)}))


def list_loaded_server_metadata():
    """Returns what describe_server returns, for each server that this call may use."""
    return _ReadyList(describe_server(name) for name in list_servers_sync())


async def list_tools(server):
    """Returns the tools of a server: name, alias, description and input_schema of each."""
    return (await _ask_async("describe", {"server": _name(server)}))["tools"]


def list_tools_sync(server):
    """Returns the tools of a server: name, alias, description and input_schema of each."""
    return describe_server(server)["tools"]


async def query_tool_docs(server, tool=None, detail="summary"):
    """Returns the documentation of the tools of a server, or of one: signature and one sentence, with "full" also the schemas."""
    return _docs(await _ask_async("tools", _docs_wanted(server, tool, detail)), tool)


def query_tool_docs_sync(server, tool=None, detail="summary"):
    """Returns the documentation of the tools of a server, or of one: signature and one sentence, with "full" also the schemas."""
    return _docs(_ask("tools", _docs_wanted(server, tool, detail)), tool)


async def search_tool_docs(query, limit=5, detail="summary"):
    """Returns the tools of all servers that fit a query best, best first; at most 20."""
    return _found(await _ask_async("search", {"query": query, "limit": limit, "detail": detail}))


def search_tool_docs_sync(query, limit=5, detail="summary"):
    """Returns the tools of all servers that fit a query best, best first; at most 20."""
    return _found(_ask("search", {"query": query, "limit": limit, "detail": detail}))


async def call_tool(server, tool, arguments=None):
    """Calls a tool by name or alias, with a dict of arguments; returns its result as a value."""
    return await _guest.part("servers").call(_name(server), tool, arguments or {})


def call_tool_sync(server, tool, arguments=None):
    """Calls a tool by name or alias, with a dict of arguments; returns its result as a value."""
    return _guest.part("servers").call_sync(_name(server), tool, arguments or {})


async def pages(tool, **arguments):
    """Yields the results of a tool page by page, as far as its API says where the next page is (OpenAPI servers)."""
    seen = []
    while True:
        page = await tool(**arguments)
        yield page
        result = _guest.part("values").raw_of(page) or {}
        following = (result.get("_meta") or {}).get("codebridge/next")
        # An API that leads back to a page would never end.
        if not isinstance(following, dict) or following in seen:
            return
        seen.append(following)
        arguments = {**arguments, **following}


def _name(named):
    """Returns the name of a server or a tool, also of one that is given as an object."""
    return getattr(named, "_codebridge_name", named)


def _docs_wanted(server, tool, detail):
    return {"server": _name(server), "tool": _name(tool), "detail": detail}


def _docs(items, tool):
    return _Docs(map(_Tool, items)) if tool is None else _Doc(items[0])


def _found(answer):
    if answer["pending"]:
        _guest.notices.append(
            "search_tool_docs: the tools of these servers are not known yet, search again in a moment: %s"
            % ", ".join(answer["pending"])
        )
    return _Docs(map(_Tool, answer["items"]))


def _ask(method, params, *how):
    return _answered(lambda: _guest.part("questions").ask(method, params, *how))


def _answered(work):
    refused = _guest.part("questions").Refused
    try:
        return work()
    except (refused, ValueError, TypeError) as error:
        raise _error_of(error, refused) from None


async def _ask_async(method, params, parse=None, default=None):
    how = {} if parse is None else {"parse": parse, "default": default}
    try:
        return await _guest.part("event_loop").ask(method, params, **how)
    except (_guest.part("questions").Refused, ValueError, TypeError) as error:
        raise _error_of(error, _guest.part("questions").Refused) from None


def _error_of(error, refused):
    if not isinstance(error, refused):
        # The arguments cannot be written as JSON.
        return MCPArgumentError(str(error))
    kind = error.kind
    raised = MCPArgumentError(str(error)) if kind == "arguments" else MCPError(str(error))
    raised.kind = kind
    return raised
