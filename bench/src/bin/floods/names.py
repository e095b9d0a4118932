# Names of servers and tools that are far longer than any real one.
while running():
    for length in (600_000, 57_000_000):
        name = "echo_" * (length // 5)
        attempt(runtime.query_tool_docs_sync, name)
        attempt(runtime.query_tool_docs_sync, "server-0", name)
        attempt(runtime.search_tool_docs_sync, name)
        attempt(lambda: runtime.describe_server(name)["name"])
