# %% look
# What can be done with the shared folder `/shared/data name`, one word for each attempt.
import ctypes
import errno
import os
import socket

PLACE = "/shared/data name/"
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    try:
        said = action()
    except OSError as error:
        said = errno.errorcode.get(error.errno, error.errno)
    print("%s: %s" % (name, said))


def read(path):
    with open(path) as file:
        return file.read().strip()


def mount(target, flags):
    if libc.mount(b"none", target.encode(), b"", flags, None):
        raise OSError(ctypes.get_errno(), "mount")


def privileged():
    pid = os.posix_spawn(PLACE + "tool", ["tool", "-u"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/tmp/id", os.O_CREAT | os.O_WRONLY, 0o600)])
    os.waitpid(pid, 0)
    return int(read("/tmp/id")) == os.getuid()


def connect(kind):
    with socket.socket(socket.AF_UNIX, kind) as end:
        end.connect(PLACE + "socket")


attempt("private", lambda: read(PLACE + "private"))
attempt("below", lambda: read(PLACE + "below/public"))
attempt("link within", lambda: read(PLACE + "within"))
attempt("link out", lambda: read(PLACE + "out"))
attempt("beside", lambda: read(PLACE + "../../" + read(PLACE + "below/public")))
attempt("only it", lambda: os.listdir("/shared"))
attempt("write", lambda: open(PLACE + "private", "a"))
attempt("new", lambda: open(PLACE + "new", "w"))
attempt("new below", lambda: os.mkdir(PLACE + "below/new"))
attempt("beside it", lambda: os.mkdir("/shared/new"))
attempt("mode", lambda: os.chmod(PLACE + "private", 0o777))
attempt("owner", lambda: os.chown(PLACE + "private", os.getuid(), os.getgid()))
attempt("time", lambda: os.utime(PLACE + "private"))
attempt("remove", lambda: os.remove(PLACE + "private"))
attempt("rename", lambda: os.rename(PLACE + "private", PLACE + "other"))
attempt("hard link", lambda: os.link(PLACE + "private", "/workspace/private"))
attempt("through process 1", lambda: open("/proc/1/root" + PLACE + "private", "a"))
attempt("through its descriptor", lambda: open("/proc/self/fd/%d" % os.open(PLACE + "private", os.O_RDONLY), "a"))
attempt("remount", lambda: mount(PLACE, 0x20))
attempt("mount over", lambda: mount(PLACE, 0x1000))
attempt("unmount", lambda: libc.umount2(PLACE.encode(), 2) and ctypes.get_errno())
attempt("set-user-id", privileged)

# %% ends
# What is no file, and what another owner keeps.
for name in "device", "socket", "kept":
    try:
        os.close(os.open(PLACE + name, os.O_RDONLY | os.O_NONBLOCK))
        print("%s: open" % name)
    except OSError as error:
        print("%s: %s" % (name, errno.errorcode[error.errno]))
attempt("stream", lambda: connect(socket.SOCK_STREAM))
attempt("datagram", lambda: connect(socket.SOCK_DGRAM))
attempt("pair of datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", PLACE + "socket"))
attempt("pair", lambda: [end.close() for end in socket.socketpair()] and "open")

# %% pipe
# A share with a pipe that a program of the host reads; then what takes processes, where Unix sockets have no names.
import errno
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor


def attempt(name, action):
    try:
        said = action()
    except OSError as error:
        said = errno.errorcode.get(error.errno, error.errno)
    print("%s: %s" % (name, said))


def write(path):
    return os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"x")


attempt("file", lambda: open("/shared/work/file").read())
attempt("write to the pipe", lambda: write("/shared/work/pipe"))
attempt("open it", lambda: os.open("/shared/work/pipe", os.O_RDWR | os.O_NONBLOCK))
attempt("new", lambda: os.mkfifo("/shared/work/new"))
with ProcessPoolExecutor(1) as pool, multiprocessing.Manager() as manager:
    print("manager:", {1: pool.submit(manager.dict({1: 2}).get, 1).result()})
