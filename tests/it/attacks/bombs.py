# What uses up a session. It ends with a reason, the bridge stays as it is, and the next call has a fresh session.

## memory at once
# refused on cgroup: error: limit of 512 MiB
# refused on rlimit: error: MemoryError
page = bytearray(2 << 30)

## memory bit by bit
# refused on cgroup: error: limit of 512 MiB
# refused on rlimit: error: MemoryError
pages = []
while True:
    pages.append(bytearray(16 << 20))

## memory shared with children
# refused on cgroup: error: limit of 512 MiB
# refused on rlimit: error: OSError: [Errno 12] Cannot allocate memory
import mmap, resource

grouped = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
pages = []
while True:
    pages.append(mmap.mmap(-1, 64 << 20))
    if grouped:
        for place in range(0, 64 << 20, 4096):
            pages[-1][place] = 1

## memory in children
# allowed: success: 9 of one
# Each has less than it may, all of them have more: whoever counts them together ends one.
import os, signal

started = []
for number in range(4):
    child = os.fork()
    if not child:
        page = bytearray(200 << 20)
        signal.pause()
    started.append(child)
first, status = os.wait()
started.remove(first)
for child in started:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(os.WTERMSIG(status), "of one")

## what waits in sockets
# allowed: success: 9 of one or error: limit of 512 MiB
# Each process has less than it may, all of them have more. The memory is the kernel's, which frees it after it has looked for
# the next one to end.
import os, signal, socket


def fill(pairs):
    # A control group would end whoever has the most memory of its own, such as the interpreter.
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    kept = [socket.socketpair() for _ in range(pairs)]
    for sender in sum(kept, ()):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        sender.setblocking(False)
        try:
            while True:
                sender.send(bytes(65536))
        except BlockingIOError:
            pass
    signal.pause()


started = []
for number in range(5):
    child = os.fork()
    if not child:
        fill(480)
    started.append(child)
first, status = os.wait()
started.remove(first)
for child in started:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(os.WTERMSIG(status), "of one")

## what waits in network connections
# allowed: success: bounded or error: limit of 512 MiB
# takes turns: seven of them leave no processor to what watches the memory
# timeout: 60
import os, signal, socket, time


def fill(done, deadline):
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []
    while len(kept) < 120 and time.monotonic() < deadline:
        kept.append(socket.create_connection(listener.getsockname()))
        kept.append(listener.accept()[0])
        # The window of a connection opens while nobody reads.
        for sender in kept:
            sender.setblocking(False)
            try:
                while True:
                    sender.send(bytes(65536))
            except BlockingIOError:
                pass
    os.write(done, b".")
    signal.pause()


def queues():
    with open("/proc/net/tcp") as table:
        fields = [line.split()[4].split(":") for line in list(table)[1:]]
    return sum(int(sent, 16) + int(received, 16) for sent, received in fields)


deadline = time.monotonic() + 20
started = []
for number in range(4):
    finished, done = os.pipe()
    child = os.fork()
    if not child:
        fill(done, deadline)
    os.close(done)
    started.append((child, finished))
# One that was killed has left nothing to read.
ended = [os.read(finished, 1) for _, finished in started]
print("bounded" if b"" in ended or queues() < 600 << 20 else queues())
for child, _ in started:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

## processes without end
# timeout: 1
# refused: timeout: stopped after 1 s
import os

while True:
    try:
        os.fork()
    except OSError:
        pass

## output without end
# timeout: 1
# refused: timeout: stopped after 1 s
import os

while True:
    os.write(1, b"x" * 65536)

## lines on both streams without end
# timeout: 1
# refused: timeout: stopped after 1 s
import os

while True:
    os.write(1, b"\n" * 65536)
    os.write(2, b"\n" * 65536)

## output of background threads without end
# allowed: success
import os, threading


def flood():
    while True:
        os.write(2, b"x" * 65536)


for number in range(3):
    threading.Thread(target=flood, daemon=True).start()

## a stopped interpreter
# timeout: 1
# refused: timeout: stopped after 1 s
import os, signal

os.kill(os.getpid(), signal.SIGSTOP)
while True:
    pass
