# %% writes_three
import sys
async def write(line): return await mcp_ledger.append(line=line)
print(sys.argv[1:])
for line in "first", "second":
    print(await runtime.step("write", write, line))
    print("reported", line, flush=True)
async def third():
    raise ValueError("not yet")
print(await runtime.step("third", third))

# %% writes_many
import asyncio
async def write(line): return await mcp_ledger.append(line=line)
async def report(step, line):
    assert await step == "written: " + line
    print("reported", line, flush=True)
for n in range(5):
    await report(runtime.step("one by one", write, "s%d" % n), "s%d" % n)
await asyncio.gather(*[report(runtime.step("side by side", write, "p%d" % n), "p%d" % n) for n in range(6)])
async def branch(b):
    for n in range(3):
        line = "b%d-%d" % (b, n)
        await report(runtime.step.options(key=line, retries=1)("branch", write, line), line)
await asyncio.gather(*map(branch, range(3)))
print("complete")

# %% waits
import asyncio
async def write(line): return await mcp_ledger.append(line=line)
await runtime.step("write", write, "first")
print("waiting", flush=True)
await runtime.step("wait", asyncio.Event().wait)

# %% shares
import os
print(os.listdir("/shared/data"))
async def make():
    open("made.txt", "w").write("made")
    return os.getcwd()
print(await runtime.step("make", make))
