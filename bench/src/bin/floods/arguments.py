# Arguments that take many times their length when they are parsed, for a server that the call may not use.
import asyncio

while running():
    try:
        await runtime.call_tool("server-0", "x", {"a": [0] * 18_000_000})
    except Exception:
        pass
    await asyncio.sleep(0)
