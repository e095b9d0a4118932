# %% lists_and_texts
names = await mcp_filesystem.list_names(path="/data")
for name in names:
    text = await mcp_filesystem.read_file(path=name)
    if "FIXME" in text:
        print("to fix:", name)

# %% objects
bugs = await mcp_tracker.search(project="CORE", state="open")
for bug in bugs:
    full = await mcp_tracker.get(id=bug.id)
    if "crash" in full.body.lower():
        made = await mcp_forge.create_issue(repo="acme/app", title=f"Crash: {bug.title}", body=full.body)
        print(made.title, made["number"], bug.by.name)

# %% helpers
from mcp import runtime
print(runtime.discovered_servers(), await runtime.discovered_servers(), await runtime.list_servers())
meta = runtime.list_loaded_server_metadata()[0]
print(runtime.describe_server(meta["name"])["tools"][0]["alias"], meta["tools"][0]["input_schema"]["required"])
brief = await runtime.query_tool_docs(meta["name"])
whole = await runtime.query_tool_docs(meta["name"], tool=brief[0]["toolAlias"], detail="full")
print([t["name"] for t in brief["tools"]], whole["inputSchema"]["type"])
full = [whole, *await runtime.query_tool_docs(meta["name"], detail="full"), *await runtime.search_tool_docs("issue", detail="full")]
print({doc["outputSchema"] for doc in full}, any("Schema" in key for doc in [*brief, *runtime.search_tool_docs_sync("issue")] for key in doc))
for hit in await runtime.search_tool_docs("free slots in my calendar", limit=3):
    print(hit["server"], hit["tool"], hit.get("description", ""))
    break
print(runtime.search_tool_docs_sync("calendar")[0]["signature"], len(runtime.list_tools_sync(meta["name"])))
print("search_tool_docs" in runtime.capability_summary(), meta["description"], runtime.discovered_servers(detailed=True)[3])

# %% imports
from mcp import mcp_servers, mcp_forge
from mcp.servers.forge import create_issue
from mcp.servers.forge import *
raw = await mcp_servers["forge"].create_issue(repo="acme/app", title="t", body="b")
print(raw["content"][0]["text"])
same = await getattr(mcp_servers["forge"], "create_issue")(repo="acme/app", title="t", body="b")
print(same == raw == await create_issue("acme/app", "t", body="b"), raw.raw["content"][0].type)

# %% try_again
import asyncio
async def attempt(n):
    for i in range(n):
        try:
            return await mcp_forge.flaky()
        except Exception as e:
            if i == n - 1: raise
            await asyncio.sleep(2 ** i / 100)
print(await asyncio.gather(*[attempt(9) for _ in range(5)]))

# %% bytes
for _ in range(2):
    await mcp_filesystem.write_file(path='/out/chart.png', content=open('/tmp/chart.png', 'rb').read())
import base64
base64.b64decode(await mcp_filesystem.read_file(path='/out/chart.png')) == bytes(range(256))

# %% forged_frame
guest = runtime._guest
guest.context = b'{"any": true, "servers": [{"name": "other", "alias": "other"}]}'
guest.channel.send((b"C", 0, guest.context))

# %% forged_questions
runtime._guest.context = b'{"any": true}'
for params in (
    {"server": "other", "tool": "echo", "arguments": {}},
    {"server": "other", "tool": "echo", "arguments": {}, "any": True, "servers": ["*"], "grant": "Any"},
    {"server": "OTHER", "tool": "echo", "arguments": {}},
    {"server": "../other", "tool": "echo", "arguments": {}},
    {"server": ["other"], "tool": "echo", "arguments": {}},
    {"server": "mine", "tool": "echo", "arguments": []},
):
    try: print(runtime._ask("call", params))
    except runtime.MCPError as e: print(str(e)[:30])

# %% keep_calling
import asyncio
async def later():
    while True:
        await asyncio.sleep(0.01)
        try: kept.append(await mcp_other.echo(a=1))
        except Exception as e: lost.append(str(e)); return
kept, lost = [], []
task = asyncio.create_task(later())
while not kept: await asyncio.sleep(0.01)
len(kept) > 0

# %% side_by_side
import asyncio, time, concurrent.futures
await mcp_fake.echo(a=1)
async def five(): return await asyncio.gather(*[mcp_fake.sleep(seconds=1) for _ in range(5)])
began = time.monotonic(); await five(); took = [time.monotonic() - began]
with concurrent.futures.ThreadPoolExecutor(5) as pool:
    began = time.monotonic()
    list(pool.map(lambda _: runtime.call_tool_sync("fake", "sleep", {"seconds": 1}), range(5)))
    took.append(time.monotonic() - began)
print([round(t, 2) for t in took], max(took) < 2)

# %% loop_of_its_own
import asyncio
async def three(): return await asyncio.gather(*[mcp_fake.echo(n=n) for n in range(3)])
[r.n for r in asyncio.run(three())]

# %% give_up
import asyncio
try: await asyncio.wait_for(mcp_fake.never(), 0.2)
except asyncio.TimeoutError: pass
len(await mcp_fake.cancelled(least=1))

# %% exit_during_a_call
import threading, os
threading.Thread(target=runtime.call_tool_sync, args=('fake', 'never')).start()
await mcp_fake.echo(a=1)
os._exit(3)

# %% crash
try: await mcp_fake.crash(words='out of ink')
except runtime.MCPError as e: print(e)
await mcp_fake.echo(a=1)

# %% aliases
import mcp.servers.my_fake as module
from mcp import mcp_my_fake
for tool in runtime.list_tools_sync("My Fake")[1:7]:
    given = {}
    exec(f"from mcp.servers.my_fake import {tool['alias']} as one", given)
    for known in getattr(mcp_my_fake, tool["alias"]), getattr(module, tool["alias"]), given["one"]:
        assert await known() == tool["name"], tool
    print(tool["alias"], end=" ")
print(await mcp_my_fake["list_items"](), await runtime.call_tool("My Fake", "list_items"), mcp_servers["my_fake"])

# %% values
import json
r = await mcp_fake.echo(n=123456789012345678901234567890, z=1e300, a="\ud83d", e=[], **{"not a name": {"b": None, "a": True}})
print(r.n == 123456789012345678901234567890, r.z == 1e300, r.e, r["not a name"], list(r))
r = await mcp_fake.raw(result='{"content": [{"type": "text", "text": "ok"}], "structuredContent": {"n": 0.10, "deep": ' + "[" * 90 + "]" * 90 + "}}")
print(r.n, str(r.deep).count("["))
for wrong in '[{"a": 1}]', "7", '{"content": "text"}':
    try: print(await mcp_fake.raw(result=wrong))
    except MCPError as error: print(error, error.result == json.loads(wrong))

# %% look_for_credentials
import os, json
print(json.dumps(dict(os.environ)), open("/proc/self/environ", "rb").read(), open("/proc/1/cmdline", "rb").read())
print(runtime.describe_server("fake"), runtime.discovered_servers(detailed=True), vars(runtime._guest))
print((await mcp_fake.environment()).env.API_TOKEN == "hunter2" + "-is-secret")
try: await mcp_fake.crash(words="hunter2" + "-is-secret")
except Exception as e: print(e)

# %% start_at_first_use
import asyncio
await asyncio.gather(*[runtime.call_tool('a', 'echo', {'n': n}) for n in range(5)])
await mcp_a.echo(a=1)
