# What can be read and written. `HOST` has a file, a process and a word in the environment of the host.

## a file of the host
# refused: ENOENT
# outside: differs
open(HOST["file"])

## a file of the host, through process 1
# refused: ENOENT
# outside: differs
open("/proc/1/root" + HOST["file"])

## a file of the host, through the parent of the root
# refused: ENOENT
# outside: differs
open("/../../../.." + HOST["file"])

## a process of the host
# refused: ENOENT
# outside: differs
os.listdir("/proc/%d/root" % HOST["pid"])

## the processes that can be seen
# allowed: done: True
known = {1, os.getpid(), os.getppid()}
result = {int(name) for name in os.listdir("/proc") if name.isdigit()} == known

## the environment of the host
# allowed: done: []
result = [name for name in os.listdir("/proc") if name.isdigit() and HOST["word"].encode() in open("/proc/%s/environ" % name, "rb").read()]

## descriptors that were left open
# allowed: done: []
places = []
for process in (name for name in os.listdir("/proc") if name.isdigit()):
    for number in os.listdir("/proc/%s/fd" % process):
        try:
            places.append(os.readlink("/proc/%s/fd/%s" % (process, number)))
        except FileNotFoundError:
            # The one that lists the folder.
            pass
result = [place for place in places if not place.startswith(("pipe:", "/proc/", "/dev/null", "/usr/lib/"))]

## who one is
# allowed: done: (65534, 65534, True)
# allowed on runc-user: done: (65534, 65534, False)
# runc as an ordinary user cannot drop that user's own groups.
result = os.getresuid()[0], os.getresgid()[0], set(os.getgroups()) <= {65534}

## rights and filters
# allowed: done: ['CapInh 0', 'CapPrm 0', 'CapEff 0', 'CapBnd 0', 'CapAmb 0', 'NoNewPrivs 1', 'Seccomp 2']
status = dict(line.split(":\t", 1) for line in open("/proc/self/status"))
names = "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"
result = ["%s %d" % (name, int(status[name], 16)) for name in names]

## the environment
# allowed: done: []
ours = {"HOME", "TMPDIR", "LANG", "PATH", "HOSTNAME", "TERM", "container"}
result = [name for name, value in os.environ.items() if name not in ours and value]

## all places that can be written to
# allowed: done: ['/dev/shm', '/projects', '/tmp', '/workspace']
places = []
for folder, folders, files in os.walk("/"):
    if folder == "/proc":
        folders.clear()
    try:
        os.close(os.open(folder + "/.attack", os.O_CREAT | os.O_WRONLY, 0o600))
        os.unlink(folder + "/.attack")
        places.append(folder)
    except OSError:
        pass
result = sorted(places)

## the flags of these places
# allowed: done: {'/tmp': (14, 64), '/workspace': (14, 128), '/projects': (14, 16), '/dev/shm': (14, 64)}
# refused on kubernetes: not tried: a pod cannot say how its folders are mounted
# nosuid, nodev and noexec; mebibytes
stats = {place: os.statvfs(place) for place in ("/tmp", "/workspace", "/projects", "/dev/shm")}
result = {place: (stat.f_flag & 15, stat.f_blocks * stat.f_frsize >> 20) for place, stat in stats.items()}

## all files that can be written to
# allowed: done: []
# What process 1 and the attack itself have is their own; the masks, the null device and its relatives take anything.
places = []
harmless = {os.stat("/dev/" + name).st_rdev for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx")}
for folder, folders, files in os.walk("/"):
    if folder == "/proc":
        folders[:] = [name for name in folders if not name.isdigit() and name not in ("self", "thread-self", "pressure")]
    for name in files:
        place = os.path.join(folder, name)
        try:
            if os.path.islink(place) or os.stat(place).st_rdev in harmless - {0}:
                continue
            os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
            places.append(place)
        except OSError:
            pass
result = places

## the devices
# allowed: done: []
known = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
result = [
    name
    for name in os.listdir("/dev")
    if os.lstat("/dev/" + name).st_rdev and name not in known
]

## a file in the root
# refused: EROFS
open("/x", "w")

## a file in usr
# refused: EROFS
open("/usr/x", "w")

## the modes of a folder
# refused: EROFS
os.chmod("/usr", 0o777)

## a character device
# refused: EPERM
# outside: differs
os.mknod("/tmp/device", 0o20666, os.makedev(1, 3))

## a disk
# refused: EPERM
os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0))

## a named pipe
# allowed: done
os.mkfifo("/tmp/pipe-of-the-attack")

## a file for oneself
# allowed: done: b'x'
with open("/workspace/own", "wb") as file:
    file.write(b"x")
result = open("/workspace/own", "rb").read()

## another owner
# refused: EPERM
os.close(os.open("/tmp/owned", os.O_CREAT | os.O_WRONLY))
os.chown("/tmp/owned", 0, 0)

## the kernel's memory
# refused: ENOENT
open("/dev/mem")

## the disks
# allowed: done: []
result = [name for name in ("vda", "sda", "nvme0n1", "dm-0", "loop0", "fuse", "kvm", "mapper") if os.path.exists("/dev/" + name)]

## the core of the kernel
# allowed: done: []
result = [place for place in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug") if os.path.exists(place) and os.path.isfile(place) and open(place, "rb").read(1)]

## the kernel's messages
# refused: EACCES
open("/proc/kmsg")

## where cores are written
# refused: EROFS
open("/proc/sys/kernel/core_pattern", "w")

## how memory is given out
# refused: EROFS
open("/proc/sys/vm/overcommit_memory", "w")

## the name of the domain
# refused: EROFS
open("/proc/sys/kernel/domainname", "w")

## the low ports
# refused: EROFS
open("/proc/sys/net/ipv4/ip_local_port_range", "w")

## who handles devices
# refused: EROFS
# refused on crun, runc: ENOENT
open("/sys/kernel/uevent_helper", "w")

## a control group
# allowed: done: []
places = []
for folder, folders, files in os.walk("/sys/fs/cgroup"):
    for attack in (lambda: os.mkdir(folder + "/attack"), lambda: write(folder + "/cgroup.procs", "0")):
        try:
            attack()
            places.append(folder)
        except OSError:
            pass
result = places

## other ids
# refused: EPERM
write("/proc/self/uid_map", "0 0 1")

## survive when memory runs out
# refused: EACCES
write("/proc/self/oom_score_adj", "-1000")

## be killed first
# allowed: done
write("/proc/self/oom_score_adj", "1000")

## the host's name servers
# allowed: done: True
import re

try:
    servers = re.findall(r"^\s*(?:nameserver|search|domain)\s+(\S+)", open("/etc/resolv.conf").read(), re.MULTILINE)
except FileNotFoundError:
    servers = []
result = set(servers) <= {"192.0.2.1", "."}
