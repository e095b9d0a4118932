# Ten thousand small questions at once.
import asyncio

while running():
    asks = [runtime.query_tool_docs("server-0") for _ in range(5_000)]
    asks += [runtime.search_tool_docs("alpha beta gamma") for _ in range(5_000)]
    await asyncio.gather(*asks, return_exceptions=True)
