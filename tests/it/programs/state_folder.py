# %% saves
def double(n):
    """Doubles a number."""
    return 2 * n


save_tool(double)
for text in "first", "second":
    await runtime.save_artifact(text, name="notes.txt", description="two versions")
print(await mcp_ledger.append(line="kept"))

# %% steps
from mcp import runtime


def first():
    return {"answer": 42}


def second():
    raise ValueError("not yet")


await runtime.step("first", first)
await runtime.step("second", second)

# %% uses
print(double(21), await runtime.load_artifact("notes.txt"))
await runtime.save_artifact("third", name="notes.txt")

# %% saves_for_alice
def triple(n):
    """Triples a number."""
    return 3 * n


save_tool(triple)
await runtime.save_artifact("of alice", name="hers.txt")
print("for alice")

# %% uses_of_alice
print(triple(21), await runtime.load_artifact("hers.txt"))
