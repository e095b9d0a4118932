"""Helpers of the bridge; see capability_summary()."""

# The module mcp.runtime. `_guest` is the interpreter. Names that start with an underscore are not for user code.

__all__ = ["MCPError", "capability_summary", "list_saved_tools", "output", "save_tool"]


class MCPError(Exception):
    """The bridge refused what was asked of it."""


def capability_summary():
    """What this sandbox can do, and the helpers of this module."""
    return _SUMMARY


_SUMMARY = """\
This is a Python session in a sandbox without network. Variables, imports, functions and files in /tmp and /workspace \
stay from call to call; `await` works at top level; the value of a last expression is shown; child processes are \
captured like print. There is no input(). Nothing needs to be imported: `runtime`, `mcp`, `mcp_servers`, \
`LOADED_MCP_SERVERS` and `save_tool` are there (or: from mcp import runtime).

- runtime.output(run_id, stream="stdout", start=0, length=None): text that an earlier run printed, in full or a part
- runtime.save_tool(function), also @save_tool: keeps a function; it is defined again in every later session
- runtime.list_saved_tools(): names of the saved functions
- runtime.capability_summary(): this text
"""


def output(run_id, stream="stdout", start=0, length=None):
    """What run `run_id` printed to "stdout" or "stderr": `length` bytes from byte `start` on, or all the rest."""
    if stream not in ("stdout", "stderr"):
        raise ValueError("stream must be 'stdout' or 'stderr', not %r" % (stream,))
    pieces = []
    while True:
        piece = _ask("output", {"run_id": run_id, "stream": stream, "start": start, "length": length})
        pieces.append(piece["text"])
        if piece["last"]:
            return "".join(pieces)
        # The host does not send all at once.
        if length is not None:
            length -= piece["end"] - start
        start = piece["end"]


def save_tool(function):
    """Keeps a function: it is defined again in every later session, also after a restart.

    Returns a confirmation; as a decorator, the function. It must be able to stand alone: what it imports, it imports
    itself.
    """
    source, decorated = _tool_source(function)
    name = function.__name__
    _ask("save_tool", {"name": name, "source": source})
    _guest.tool_names.add(name)
    _write_to_projects(name, source)
    if decorated:
        return function
    missing = _session_names(function, source)
    text = "Saved: %s() is defined in every later session." % name
    if missing:
        text += " It uses %s of this session, which will not be there: import or define it inside." % ", ".join(missing)
    return text


def list_saved_tools():
    """Names of all saved functions. Those that another session saved meanwhile are defined in the next one."""
    return _ask("list_saved_tools", {})


def _ask(method, params):
    queries = _guest.part("queries")
    try:
        return queries.ask(method, params)
    except queries.Refused as refusal:
        raise MCPError(str(refusal)) from None


async def _ask_async(method, params):
    try:
        return await _guest.part("event_loop").ask(method, params)
    except _guest.part("queries").Refused as refusal:
        raise MCPError(str(refusal)) from None


def _loaded_servers():
    import json

    return list(json.loads(_guest.context or b"{}").get("servers") or ())


# Saved tools.


def _tool_source(function):
    """The text of a function without `@save_tool`, and whether that was there."""
    import ast
    import inspect
    import textwrap

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
    ours = [node for node in definition.decorator_list if _last_name(node) == "save_tool"]
    for node in reversed(ours):
        del lines[node.lineno - 1 : node.end_lineno]
    source = "".join(lines)
    compile(source, "<saved tool %s>" % function.__name__, "exec", 0, True)
    return source, bool(ours)


def _last_name(node):
    return getattr(node, "attr", getattr(node, "id", None))


def _session_names(function, source):
    """Names that the function takes from this session, and will not find in another one."""
    known = _guest.always_there | _guest.tool_names | {function.__name__}
    used = _global_names(compile(source, "<saved tool>", "exec", 0, True))
    return sorted(name for name in used - known if name in _guest.namespace)


def _global_names(code):
    import dis

    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            names |= _global_names(constant)
    return names


def _write_to_projects(name, source):
    """A copy for the user to look at. The folder is there only when the host shares it."""
    import os

    path = os.path.join(_guest.settings.get("projects", "/projects"), name + ".py")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(source)
    except OSError:
        pass
