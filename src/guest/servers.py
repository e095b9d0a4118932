# The user's MCP servers as code sees them: mcp_github.create_issue, mcp.servers.github, mcp_servers["github"].
# The host knows them, and decides which of them a call may use. `guest` is the interpreter.

import sys

runtime = guest.runtime
# Calls within each other that are looked through for the line of the code.
MOST_FRAMES = 50
# Alias -> server.
by_alias = {}
# The context of the last run, and the servers that it may use, by variable.
entered, granted = None, {}
# Tool functions that have no signature yet, because inspect is not imported.
unsigned = []


class Server:
    """A server of the user. Its tools are its attributes."""

    def __init__(self, name, alias):
        # By the names of the tools, so that name and alias lead to the same function.
        self.__dict__.update(_codebridge_name=name, _codebridge_alias=alias, _codebridge_tools={})

    def __getattr__(self, name):
        """An attribute is an alias first: a documented alias of one tool may be the name of another."""
        if is_special(name):
            raise AttributeError(name)
        try:
            function = tool_function(self, name, alias_first=True)
        except runtime.MCPError as error:
            if name.startswith(("_repr_", "_ipython_")):
                # Code that displays objects looks for these; it must not fail because the server does.
                raise AttributeError(str(error)) from None
            raise
        self.__dict__[name] = function
        return function

    def __getitem__(self, name):
        return self._codebridge_tools.get(name) or tool_function(self, name)

    def __dir__(self):
        return {*object.__dir__(self), *tool_aliases(self)}

    def __repr__(self):
        return "<MCP server %r: mcp_%s>" % (self._codebridge_name, self._codebridge_alias)


def server(name, alias):
    known = by_alias.get(alias)
    if known is None or known._codebridge_name != name:
        known = by_alias[alias] = Server(name, alias)
    return known


class Added(Server):
    """A server that code has added. It can also be awaited."""

    def __await__(self):
        return self
        yield


def add(params):
    """Adds a server, and defines its variable."""
    found = runtime._ask("add_server", params)
    added = by_alias[found["alias"]] = Added(found["name"], found["alias"])
    define("mcp_" + found["alias"], added)
    return added


def find(name, alias_first=False):
    """Returns the server of a name or an alias."""
    found = runtime._ask("server", {"server": name, "alias_first": alias_first})
    return server(found["name"], found["alias"])


def tool_aliases(server):
    return [tool["toolAlias"] for tool in runtime._ask("tools", {"server": server._codebridge_name})]


def importable(server):
    """Returns what `import *` takes: only available tools, and none that would hide a builtin or a name of the bridge."""
    names = []
    for alias in tool_aliases(server):
        if alias in __builtins__ or alias in guest.initial_names or is_special(alias) or alias.startswith("_codebridge_"):
            continue
        try:
            getattr(server, alias)
        except (runtime.MCPError, AttributeError):
            continue
        names.append(alias)
    return names


def is_special(name):
    """Whether Python itself looks for attributes of such names. Aliases such as `__2` are not among them."""
    return name[:2] == name[-2:] == "__" and name[2:3].isalpha()


# The variables mcp_… of cells.


def enter(context):
    """Defines the servers that a call may use at its start, also for code that computes their names."""
    global entered, granted
    namespace = guest.namespace
    if context != entered:
        # There may be thousands, of which few are used.
        granted = {"mcp_" + known["alias"]: server(known["name"], known["alias"]) for known in of_context(context)}
        for variable in granted.keys() & namespace.keys():
            define(variable, granted[variable])
        entered = context
    if not granted.keys() <= namespace.keys():
        for variable in granted:
            namespace.setdefault(variable, granted[variable])


def define_mentioned(codes):
    """Defines other servers in code that mentions them; the host decides which of them may be called."""
    wanted = sorted(name for code in codes for name in mentioned(code) if name not in guest.namespace)
    if wanted:
        for known in runtime._ask("servers", {"aliases": [name[4:] for name in wanted]}):
            define("mcp_" + known["alias"], server(known["name"], known["alias"]))


def mentioned(code):
    names = {name for name in code.co_names if name.startswith("mcp_") and name != "mcp_servers"}
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            names |= mentioned(constant)
    return names


def reason(variable):
    """Returns why the host has no server for a variable; None when it has one, or cannot be asked."""
    try:
        find(variable[len("mcp_") :], alias_first=True)
    except runtime.MCPError as error:
        return str(error) if error.kind == "server" else None
    return None


def say_why_undefined(error):
    """Adds to a NameError why there is no variable for a server: it is skipped, or has another name."""
    try:
        message = str(error)
        variable = message[len("name '") :].partition("'")[0]
        if variable.startswith("mcp_") and message == "name '%s' is not defined" % variable:
            why = reason(variable)
            if why is not None:
                error.args = ("%s: %s" % (message, why),)
                # Python would add the nearest name that it knows.
                error.name = None
    except BaseException:
        # An interrupt, no memory, or a text of user code: the error is reported as it is.
        pass


def define(variable, server):
    """Defines a server, unless the user has a variable of that name."""
    if isinstance(guest.namespace.get(variable, server), Server):
        guest.namespace[variable] = server


def of_context(context):
    import json

    return json.loads(context or b"{}").get("servers") or ()


def allowed():
    """Returns the names of the servers that this call may use."""
    return [known["name"] for known in of_context(guest.context)]


# Tools.


def tool_function(server, name, alias_first=False):
    try:
        params = {"server": server._codebridge_name, "tool": name, "alias_first": alias_first}
        doc = runtime._ask("tool", params)
    except runtime.MCPError as error:
        if getattr(error, "kind", None) == "tool":
            raise runtime.MCPAttributeError(str(error)) from None
        raise
    tool, parameters = doc["tool"], doc["parameters"]
    if tool in server._codebridge_tools:
        return server._codebridge_tools[tool]

    async def function(*positional, **arguments):
        return await call(server._codebridge_name, tool, bound(doc, positional, arguments), doc)

    function._codebridge_name = tool
    function.__name__ = doc["toolAlias"]
    function.__qualname__ = "mcp_%s.%s" % (server._codebridge_alias, doc["toolAlias"])
    function.__module__ = "mcp.servers." + server._codebridge_alias
    function.__doc__ = docstring(doc)
    function.__annotations__ = {parameter["name"]: parameter["type"] for parameter in parameters}
    if "inspect" in sys.modules:
        sign(function, parameters)
    else:
        unsigned.append((function, parameters))
    return server._codebridge_tools.setdefault(tool, function)


def bound(doc, positional, arguments):
    """Gives positional arguments the names of the signature. The host checks everything else."""
    names = [parameter["name"] for parameter in doc["parameters"]]
    if len(positional) > len(names):
        raise runtime.MCPArgumentError(
            "%s() takes %d arguments, %d were given: %s"
            % (doc["toolAlias"], len(names), len(positional), doc["signature"])
        )
    for name, value in zip(names, positional):
        if name in arguments:
            raise runtime.MCPArgumentError("%s() got '%s' twice" % (doc["toolAlias"], name))
        arguments[name] = value
    return arguments


def docstring(doc):
    lines = [doc["description"].strip() or doc["tool"], ""]
    properties = doc["inputSchema"].get("properties") if isinstance(doc["inputSchema"], dict) else None
    for parameter in doc["parameters"]:
        schema = properties.get(parameter["name"]) if isinstance(properties, dict) else None
        description = schema.get("description") if isinstance(schema, dict) else None
        kind = parameter["type"] if parameter["required"] else parameter["type"] + ", optional"
        lines.append(("%s (%s): %s" % (parameter["name"], kind, description or "")).rstrip(": "))
    return "\n".join(lines).rstrip()


def sign(function, parameters):
    import inspect
    import keyword

    kinds, odd = [], False
    for parameter in parameters:
        name = parameter["name"]
        if not name.isidentifier() or keyword.iskeyword(name):
            odd = True
            continue
        default = inspect.Parameter.empty if parameter["required"] else parameter.get("default")
        kinds.append(
            inspect.Parameter(
                name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=parameter["type"]
            )
        )
    if odd:
        # They are given as **{…}.
        kinds.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    function.__signature__ = inspect.Signature(kinds)


def sign_all():
    while unsigned:
        sign(*unsigned.pop())


async def call(server, tool, arguments, doc=None):
    values = guest.part("values")
    encoded = values.encoded
    params = {"server": server, "tool": tool, "arguments": arguments, "line": line_of_code()}
    result = await runtime._ask_async("call", params, values.parse, values.jsonable)
    if doc and values.encoded != encoded:
        notice_bytes(server, tool, arguments, doc["inputSchema"])
    return finished(values, server, tool, result)


def call_sync(server, tool, arguments):
    values = guest.part("values")
    params = {"server": server, "tool": tool, "arguments": arguments, "line": line_of_code()}
    return finished(values, server, tool, runtime._ask("call", params, values.parse, values.jsonable))


def line_of_code():
    """Returns the line of the current code that led to a call, or None: the host shows it to the person who has to allow the call."""
    frame = sys._getframe(2)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_filename == guest.cell_name:
            return frame.f_lineno
        frame = frame.f_back
    return None


def notice_bytes(server, tool, arguments, schema):
    """Says which arguments had bytes in them, unless the tool says that it takes base64: a file may have that text in it now."""
    names = [name for name, value in arguments.items() if has_bytes(value)]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    if any("encoding" in name.lower() for name in properties):
        return
    for name in names:
        notice = 'bytes were sent as base64 text to "%s" of %s.%s' % (name, server, tool)
        if "base64" not in str(properties.get(name)).lower() and notice not in guest.notices:
            guest.notices.append(notice)


def has_bytes(value):
    if isinstance(value, dict):
        return any(map(has_bytes, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(has_bytes, value))
    return isinstance(value, (bytes, bytearray, memoryview))


def finished(values, server, tool, result):
    value, problem = result, values.not_a_result(result)
    if problem is None:
        value = values.value_of(result)
        if result.get("isError") in (True, "true"):
            problem = values.error_text(result)
    if problem is not None:
        error = runtime.MCPError("%s.%s: %s" % (server, tool, problem))
        error.result = value
        raise error
    return value


# The modules mcp.servers and mcp.servers.ALIAS.


class ServersModule(type(sys)):
    def __getattr__(self, name):
        if is_special(name):
            raise AttributeError(name)
        try:
            return find(name, alias_first=True)
        except runtime.MCPError as error:
            raise AttributeError(str(error)) from None


class ServerModule(type(sys)):
    def __getattr__(self, name):
        if name == "__all__":
            return importable(self._codebridge_server)
        return getattr(self._codebridge_server, name)

    def __dir__(self):
        return dir(self._codebridge_server)


class Loader:
    def __init__(self, server=None):
        self.server = server

    def create_module(self, spec):
        if self.server is None:
            return ServersModule(spec.name, "The user's MCP servers, one module each.")
        module = ServerModule(spec.name, "The tools of the MCP server %r." % self.server._codebridge_name)
        module._codebridge_server = self.server
        return module

    def exec_module(self, module):
        pass


def find_spec(name):
    from importlib.machinery import ModuleSpec

    if name == "mcp.servers":
        return ModuleSpec(name, Loader(), is_package=True)
    # The errors name no module: Python hides the message of one that names the module it looks for.
    if name.startswith("mcp.mcp_"):
        # `from mcp import mcp_github`, after the module was asked for the attribute.
        why = reason(name[len("mcp.") :])
        if why is not None:
            raise ImportError(why)
        return None
    try:
        return ModuleSpec(name, Loader(find(name[len("mcp.servers.") :], alias_first=True)))
    except runtime.MCPError as error:
        raise ModuleNotFoundError(str(error)) from None
