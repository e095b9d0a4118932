# %% names
import base64
import struct
import zlib

from IPython.display import HTML, Image


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = b"".join(b"\0" + b"\xff\0\0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


# %% in_order
import subprocess

for n in range(3):
    print("before", n)
    display(Image(png(n + 1, 1)))
    subprocess.run(["echo", "after", str(n)])
display(HTML("<script>alert(1)</script>"))

# %% forged
# What no guest sends: not a table, a table that promises more, a type that clears the screen, an object of 100 MiB.
import gc

[guest] = [it for it in gc.get_objects() if type(it).__name__ == "Interpreter"]
for payload in b"x", b'[["image/png", 99]]\nx', b'[["a/\\u001b[2J", 1]]\nx', b'[["image/png", 1]]\nx':
    guest.channel.send((b"V", guest.current, payload))
print("alive")

# %% too_long
guest.channel.send((b"V", guest.current, bytes(18 << 20)))

# %% first_figure
import matplotlib.pyplot as plt

print("before")
plt.plot([1, 4, 9])
plt.show()
print("after")

# %% open_figure
plt.title("later")
None

# %% saved_figure
plt.plot([2, 3])
plt.savefig("/tmp/figure.png")

# %% unchanged_figure
print("nothing new")

# %% each_library
import pandas as pd, polars as pl, seaborn as sns, plotly.express as px
from PIL import Image as Pillow

plt.close("all")
df = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
display(df, pl.DataFrame({"x": [1]}), df.style.highlight_max())
sns.lineplot(df, x="x", y="y")
plt.show()
px.line(df, x="x", y="y").show()
Pillow.new("RGB", (7, 7))

# %% altair
import altair as alt

alt.Chart(df).mark_point().encode(x="x", y="y")
