# Functions that are kept for later sessions. `guest` is the interpreter.

import ast
import dis
import inspect
import os
import textwrap

LONGEST_SIGNATURE, LONGEST_DOC, LONGEST_NAME, MOST_NAMES = 1000, 1500, 200, 100

runtime = guest.runtime


def save(function, example=None):
    """Saves a function; returns what to show, or the function if it was decorated."""
    if example is not None:
        if not isinstance(example, str):
            raise TypeError("example must be text: code that shows whether the function works")
        example = textwrap.dedent(example).strip("\n") + "\n"
        compile(example, "<example>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    source, definition, decorated = read(function)
    name = function.__name__
    runtime._ask("save_tool", {"name": name, "source": source, "example": example, "details": details(definition)})
    guest.tool_names.add(name)
    guest.sources["<saved tool %s>" % name] = source
    write_to_projects(name, source)
    if decorated:
        return function
    missing = session_names(function, source)
    text = "Saved: %s() is defined in every later session." % name
    if missing:
        text += " It uses %s of this session, which later sessions do not have: import or define that inside the function." % ", ".join(missing)
    return text


def read(function):
    """Returns the source of a function without `@save_tool`, its definition, and whether it had that."""
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise TypeError("save_tool needs a function made with def, not %r" % (function,))
    if function.__code__.co_freevars:
        raise ValueError(
            "%s() uses variables of the function around it: %s. Pass them as arguments."
            % (function.__name__, ", ".join(function.__code__.co_freevars))
        )
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    definition = tree.body[0]
    if len(tree.body) != 1 or getattr(definition, "name", None) != function.__name__:
        raise ValueError("the source of %s() is not one definition of that name" % function.__name__)
    lines = source.splitlines(True)
    ours = [node for node in definition.decorator_list if last_name(getattr(node, "func", node)) == "save_tool"]
    for node in reversed(ours):
        del lines[node.lineno - 1 : node.end_lineno]
    source = "".join(lines)
    compile(source, "<saved tool %s>" % function.__name__, "exec", 0, True)
    return source, definition, bool(ours)


def details(definition):
    """Returns what the host cannot know without running or parsing the function. It is shown to people and models."""
    signature = "%s(%s)" % (definition.name, ast.unparse(definition.args))
    if definition.returns is not None:
        signature += " -> " + ast.unparse(definition.returns)
    if isinstance(definition, ast.AsyncFunctionDef):
        signature = "async " + signature
    servers, tools = used(definition)
    return {
        "signature": signature if len(signature) <= LONGEST_SIGNATURE else None,
        "doc": (ast.get_docstring(definition) or "")[:LONGEST_DOC],
        "servers": sorted(servers)[:MOST_NAMES],
        "tools": sorted(tools)[:MOST_NAMES],
    }


def used(definition):
    """Returns the servers that a function mentions, and the tools as pairs of server and tool, by their names in Python."""
    servers, tools = set(), set()
    for node in ast.walk(definition):
        servers.add(server_of(node))
        if isinstance(node, ast.Attribute):
            tools.add((server_of(node.value), node.attr))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [alias.name for alias in node.names]
            if node.module == "mcp":
                servers.update(map(server_named, names))
            elif node.module == "mcp.servers":
                servers.update(names)
            elif node.module.startswith("mcp.servers."):
                tools.update((node.module[12:], name) for name in names)
        elif isinstance(node, ast.Import):
            servers.update(alias.name[12:] for alias in node.names if alias.name.startswith("mcp.servers."))
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            called, (first, second) = last_name(node.func), node.args[:2]
            if called in ("call_tool", "call_tool_sync") and is_text(first) and is_text(second):
                tools.add((alias_of(first.value), alias_of(second.value)))
            elif called == "getattr" and is_text(second):
                tools.add((server_of(first), alias_of(second.value)))
    servers.update(server for server, _ in tools)
    known = lambda name: name and name != "*" and len(name) <= LONGEST_NAME
    return set(filter(known, servers)), {pair for pair in tools if known(pair[0]) and known(pair[1])}


def server_of(node):
    """Returns the server that an expression is: mcp_x, mcp.mcp_x or mcp_servers["x"]; else None."""
    if isinstance(node, ast.Subscript):
        return alias_of(node.slice.value) if last_name(node.value) == "mcp_servers" and is_text(node.slice) else None
    return server_named(last_name(node) or "")


def server_named(name):
    return name[4:] if name[:4] == "mcp_" and name != "mcp_servers" else None


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def alias_of(name):
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())


def last_name(node):
    return getattr(node, "attr", getattr(node, "id", None))


def session_names(function, source):
    """Returns the names that the function takes from this session, and that another session does not have."""
    known = guest.initial_names | guest.tool_names | {function.__name__}
    names = global_names(compile(source, "<saved tool>", "exec", 0, True))
    return sorted(name for name in names - known if name in guest.namespace and not is_defined_everywhere(guest.namespace[name]))


def is_defined_everywhere(value):
    """Whether every session defines the value in code that mentions it."""
    return value is runtime.MCPError or isinstance(value, guest.part("servers").Server)


def global_names(code):
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            names |= global_names(constant)
    return names


def write_to_projects(name, source):
    """Writes a copy for the user to read. The folder exists only when the host shares it."""
    path = os.path.join(guest.settings.get("projects", "/projects"), name + ".py")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError:
        pass
