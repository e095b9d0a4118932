# Limits that end an attempt and nothing else.

## descriptors
# refused: EMFILE
while True:
    os.dup(0)

## files in the limit of descriptors
# allowed: done: True
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    result = 900 < len(taken) < 1024

## processes
# refused: EAGAIN
os.setpgid(0, 0)
started = []
try:
    while len(started) < 1000:
        child = os.fork()
        if not child:
            signal.pause()
        started.append(child)
finally:
    for child in started:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

## the number of processes
# allowed: done: True
# allowed on kubernetes: done: False
os.setpgid(0, 0)
started = []
try:
    while len(started) < 1000:
        child = os.fork()
        if not child:
            signal.pause()
        started.append(child)
except BlockingIOError:
    result = 100 <= len(started) < 128
finally:
    for child in started:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

## threads
# refused: RuntimeError: can't start new thread
import threading

for number in range(1000):
    threading.Thread(target=signal.pause, daemon=True).start()

## all space in tmp
# refused: ENOSPC
# refused on kubernetes: not tried: kubelets before 1.22 give the folder no size, and memory runs out
with open("/tmp/full", "wb") as file:
    os.unlink("/tmp/full")
    while True:
        os.write(file.fileno(), bytes(1 << 20))

## all space in workspace
# refused: ENOSPC
# refused on kubernetes: not tried: kubelets before 1.22 give the folder no size, and memory runs out
with open("/workspace/full", "wb") as file:
    os.unlink("/workspace/full")
    while True:
        os.write(file.fileno(), bytes(1 << 20))

## all space in projects
# refused: ENOSPC
# refused on kubernetes: not tried: kubelets before 1.22 give the folder no size, and memory runs out
with open("/projects/full", "wb") as file:
    os.unlink("/projects/full")
    while True:
        os.write(file.fileno(), bytes(1 << 20))

## all space in shared memory
# refused: ENOSPC
with open("/dev/shm/full", "wb") as file:
    os.unlink("/dev/shm/full")
    while True:
        os.write(file.fileno(), bytes(1 << 20))

## all files of projects
# refused: ENOSPC
# allowed on podman, kubernetes: done
# podman has no option for the number of files; there as elsewhere a control group counts their memory.
os.mkdir("/projects/many")
try:
    for number in range(10000):
        os.mkdir("/projects/many/%d" % number)
finally:
    for name in os.listdir("/projects/many"):
        os.rmdir("/projects/many/" + name)
    os.rmdir("/projects/many")

## message queues
# refused: EMFILE
# refused on crun, runc: ENOENT
os.close(os.open("/dev/mqueue/attack", os.O_CREAT | os.O_WRONLY))

## locked memory
# refused: ENOMEM
page = ctypes.create_string_buffer(64 << 20)
checked(libc.mlock(page, len(page)))

## a core
# allowed: done: False
child = os.fork()
if not child:
    os.abort()
result = os.WCOREDUMP(os.waitpid(child, 0)[1])

## more memory than there is
# refused: MemoryError:
# allowed on cgroup: done: 9
child = os.fork()
if not child:
    try:
        page = bytearray(1 << 30)
    except MemoryError:
        os._exit(0)
    os._exit(1)
status = os.waitpid(child, 0)[1]
if not os.WIFSIGNALED(status):
    raise (MemoryError if status == 0 else RuntimeError)("")
result = os.WTERMSIG(status)
