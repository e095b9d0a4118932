"""Drives a bridge with the Python SDK and says in JSON what came of it.

Arguments: `initialize` or `discover` (how the connection begins), then the bridge's command line, or its URL and a token.
"""

import json
import os
import sys

import anyio
import mcp
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def call(client, code, on_progress=None, **more):
    result = await client.call_tool("run_python", {"code": code, **more}, progress_callback=on_progress)
    text = "".join(block.text for block in result.content if block.type == "text")
    return {"text": text, "isError": bool(result.is_error)}


async def call_until_ready(session, code):
    """Cancels the call as soon as its output says `ready`, and returns what that said."""
    said = []
    with anyio.CancelScope() as scope:

        async def on_progress(progress, total, message):
            said.append(message)
            if "ready" in (message or ""):
                scope.cancel()

        said.append(await call(session, code, on_progress, timeout=100))
    return said


async def drive(session, version):
    told = {"version": version}
    told["tools"] = [tool.model_dump(mode="json", by_alias=True) for tool in (await session.list_tools()).tools]
    resources = (await session.list_resources()).resources
    told["resources"] = [str(resource.uri) for resource in resources]
    told["resource"] = (await session.read_resource(resources[0].uri)).contents[0].text
    told["run"] = await call(session, "print(6 * 7)")
    told["raise"] = await call(session, "1 / 0")
    told["refused"] = await call(session, "1", timeout="soon")
    told["progress"] = await call_until_ready(session, "n = 7\nprint('ready', flush=True)\nimport time\ntime.sleep(100)")
    with anyio.fail_after(50):
        told["after"] = await call(session, "print(n)")
    told["parallel"] = [None, None]

    async def one(at):
        told["parallel"][at] = await call(session, f"print({at})", session=f"s{at}")

    async with anyio.create_task_group() as tasks:
        for at in range(2):
            tasks.start_soon(one, at)
    print(json.dumps(told))


async def main(beginning, command, *arguments):
    if command.startswith("http:"):
        headers = {"Authorization": f"Bearer {arguments[0]}"}
        async with create_mcp_http_client(headers=headers) as http_client:
            await begin(beginning, streamable_http_client(command, http_client=http_client))
    else:
        # It passes on only a few variables by itself.
        bridge = mcp.StdioServerParameters(command=command, args=list(arguments), env=dict(os.environ))
        await begin(beginning, stdio_client(bridge))


async def begin(beginning, transport):
    if beginning == "discover":
        async with mcp.Client(transport) as client:
            await drive(client, client.protocol_version)
    else:
        async with transport as streams, mcp.ClientSession(*streams) as session:
            await drive(session, (await session.initialize()).protocol_version)


anyio.run(main, *sys.argv[1:])
