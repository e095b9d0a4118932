# %% make
import os

os.makedirs("sub/x", exist_ok=True)
with open("out.csv", "w") as file:
    file.write("a,b\n" * 300)
with open("sub/x/p.png", "wb") as file:
    file.write(b"\x89PNG")
open(".hidden", "w").close()
print("done")

# %% hostile
import os

names = b"a\nerror: \x1b[2J", b"\xff", b"x" * 255, "\u202egnp.exe".encode()
for name in names:
    open(name, "w").close()
for n in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("deep", "w").close()
os.chdir("/workspace")
os.symlink("/etc/passwd", "link")
os.symlink("/etc", "folder")
os.symlink("/proc/1", "guest")
os.mkfifo("pipe")

# %% many
for n in range(20_000):
    open("f%d" % n, "w").close()

# %% busy
open("while.txt", "w").write("running")
print("ready", flush=True)
import time

while True:
    time.sleep(0.01)

# %% floods_later
import threading

def flood():
    while True:
        print("x" * 1000)

open("behind.txt", "w").write("read me")
threading.Thread(target=flood, daemon=True).start()

# %% forged
import gc

[guest] = [it for it in gc.get_objects() if type(it).__name__ == "Interpreter"]
for kind in FORGED:
    guest.channel.send((kind, guest.current, b"1 ../../etc/passwd\0"))

# %% forged_past_process_1
import os

# What process 1 writes to the bridge: the last of its pipes, see launcher.py.
places = ["/proc/1/fd/%s" % number for number in sorted(map(int, os.listdir("/proc/1/fd")))]
host = os.open([place for place in places if os.readlink(place).startswith("pipe:")][-1], os.O_WRONLY)
files = b"".join(b"1 %d%s\0" % (number, b"/a" * 2000) for number in range(20))
frame = b"F" + (1).to_bytes(4, "big") + len(files).to_bytes(4, "big") + files
while frame:
    frame = frame[os.write(host, frame) :]
