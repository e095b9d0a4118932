# %% names
import base64, struct, zlib
from IPython.display import HTML, Image

def png(number):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    pixels = b"".join(b"\0" + bytes((number + row) % 256 for row in range(3 * 64)) for _ in range(64))
    head = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")

# %% shows
for number in range(3):
    print("shown", number)
    display(Image(png(number)), HTML(f"<b>{number}</b>"))

# %% keeps
import os
await runtime.save_artifact(os.urandom(100_000), name="kept.bin")
await runtime.save_artifact("one more\n" * 1000, name="kept.txt")
len(await runtime.load_artifact("kept.bin"))

# %% asks
import asyncio
answers = await asyncio.gather(*[mcp_fake.echo(a=number) for number in range(10)])
found = await runtime.search_tool_docs("echo")
try:
    await runtime.call_tool("absent", "echo", {})
except Exception as error:
    refused = type(error).__name__
[answer["a"] for answer in answers], len(found), refused

# %% goes_on
import time
for number in range(20):
    print("line", number, flush=True)
    time.sleep(0.02)
"done"
