# %% double
def double(n):
    '''Twice as much.'''
    return 2 * n
save_tool(double)

# %% triple
@save_tool
def triple(n):
    return 3 * n

# %% double_replaced
def double(n):
    return n + n + 0.5
save_tool(double)

# %% taken_names
import builtins
import keyword

names = {*dir(builtins), *keyword.kwlist, *getattr(keyword, "softkwlist", ()), *runtime._guest.initial_names, "mcp_x", "mcp_tracker"}
saved = 0
for name in names:
    try:
        runtime._ask("save_tool", {"name": name, "source": "def %s(): pass" % name})
        print(name)
        saved += 1
    except runtime.MCPError as error:
        if name not in str(error):
            raise
print(saved, "saved")

# %% save_again_and_again
import time
until = time.monotonic() + 5
body = ''.join(f"    {VERSION}{n} = '{VERSION}'\n" for n in range(500))
while time.monotonic() < until:
    for name in ('one', 'two', 'three'):
        source = f"def {name}():\n{body}    return set(locals().values())\n"
        scope = {}
        import linecache
        linecache.cache[f'<{name}>'] = (len(source), None, source.splitlines(True), f'<{name}>')
        exec(compile(source, f'<{name}>', 'exec'), scope)
        save_tool(scope[name])

# %% all_are_whole
found = [f() for name in ('one', 'two', 'three') if (f := globals().get(name))]
assert all(it in ({'a'}, {'b'}) for it in found), found
len(found)

# %% closes
@save_tool
async def close_all(project: str, *, limit=10) -> int:
    '''Closes all issues of a project.'''
    bugs = await mcp_tracker.search(project=project, state="open")
    return len(bugs[:limit])

# %% forged
def refusal(**params):
    try:
        runtime._ask("save_tool", params)
    except runtime.MCPError as error:
        return str(error)
    raise AssertionError(params["name"])

for name in ("../x", "../../x", "a/b", "", "x.py", ".versions", "a\0b"):
    assert "is not the name of a function" in refusal(name=name, source=""), name
assert "10240 KiB" in refusal(name="double", source="#" * (10 << 20))
assert "longer than 256 KiB" in refusal(name="double", source="#" * ((256 << 10) + 1))
assert "longer than 16 KiB" in refusal(name="double", source="", example="#" * ((16 << 10) + 1))
for details in (1, {"servers": "x"}, {"tools": [["a"]]}, {"signature": 1}):
    refusal(name="double", source="", details=details)
print("refused")

# %% too_much
import json
runtime._ask("save_tool", {"name": "f", "source": "def f(): return 1\n"})
for source in ("def f(): return 2\n" + "#" * 100_000, "def f(): return 3\n" + "#" * 60_000):
    try:
        runtime._ask("save_tool", {"name": "f", "source": source})
        print("saved")
    except runtime.MCPError as error:
        print(error)

# %% with_examples
@save_tool(example="assert twice(2) == 4")
def twice(n):
    return 2 * n

@save_tool(example="""
    assert await note("from the example") == "written: from the example"
""")
async def note(line):
    return await mcp_ledger.append(line=line)

async def plain(line):
    return await mcp_ledger.append(line=line)

print(await note("now"))
save_tool(note, example='assert await note("from the example") == "written: from the example"')
confirmation = save_tool(plain)

# %% search
hit = (await runtime.search_tool_docs("close every issue of some project", limit=3))[0]
print(hit["kind"], hit["server"], hit["tool"], hit["signature"], hit["description"], hit["servers"])
whole = runtime.search_tool_docs_sync("close all", limit=1, detail="full")[0]
print(whole["description"], whole["inputSchema"], whole["outputSchema"])
print([(one["name"], one["version"]) for one in runtime.search_tool_docs_sync("double")])
