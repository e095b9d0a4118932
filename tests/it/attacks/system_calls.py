# System calls that reach the kernel, other processes or other namespaces. Those that are tried outside as well are harmless
# there: their arguments are wrong, which root is told, while the sandbox is told nothing but no.

## mount a tmpfs
# refused: EPERM
# outside: differs
syscall("mount", b"none", b"/nowhere at all", b"tmpfs", 0, None)

## bind a folder
# refused: EPERM
syscall("mount", b"/usr", b"/tmp", None, 4096, None)

## make the root writable
# refused: EPERM
syscall("mount", b"none", b"/", None, 32, None)

## make a read-only part of proc writable
# refused: EPERM
syscall("mount", b"none", b"/proc/sys", None, 32 | 4096, None)

## unmount
# refused: EPERM
# outside: differs
syscall("umount2", b"/nowhere at all", 0)

## uncover a masked file
# refused: EPERM
syscall("umount2", b"/proc/keys", 2)

## pivot the root
# refused: EPERM
# outside: differs
syscall("pivot_root", b"/nowhere at all", b"/nowhere at all")

## change the root
# refused: EPERM
# outside: differs
syscall("chroot", b"/nowhere at all")

## open a file system
# refused: EPERM
# outside: differs
syscall("fsopen", b"no such file system", 0)

## mount an open file system
# refused: EPERM
# outside: differs
syscall("fsmount", -1, 0, 0)

## configure a file system
# refused: EPERM
# outside: differs
syscall("fsconfig", -1, 0, 0, 0, 0)

## clone a mount
# refused: EPERM
# outside: differs
syscall("open_tree", -1, b"", 1)

## move a mount
# refused: EPERM
# outside: differs
syscall("move_mount", -1, b"", -1, b"", 0)

## change the flags of a mount
# refused: EPERM
# outside: differs
syscall("mount_setattr", -1, b"", 0, None, 0)

## make a user namespace
# refused: EPERM
# outside: differs
syscall("unshare", 0x10000000)

## make a network namespace
# refused: EPERM
# outside: differs
syscall("unshare", 0x40000000)

## make a mount namespace
# refused: EPERM
# outside: differs
syscall("unshare", 0x00020000)

## make a time namespace
# refused: EPERM
# outside: differs
syscall("unshare", 0x80)

## enter a namespace
# refused: EPERM
# outside: differs
syscall("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)

## start a process in a user namespace
# refused: EPERM
# outside: differs
syscall("clone", 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)

## start a process in a mount namespace
# refused: EPERM
# outside: differs
syscall("clone", 0x00020000 | 17, 0, 0, 0, 0) or os._exit(0)

## start a process in namespaces with more than 32 bits
# refused: EPERM
syscall("clone", 1 << 40 | 0x7E020000 | 17, 0, 0, 0, 0) or os._exit(0)

## start a process without namespaces
# allowed: done
syscall("clone", 17, 0, 0, 0, 0) or os._exit(0)

## start a process with hidden flags
# refused: ENOSYS
# outside: differs
syscall("clone3", None, 0)

## start a process in a user namespace with hidden flags
# refused: ENOSYS
syscall("clone3", struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88) or os._exit(0)

## let oneself be traced
# refused: EPERM
# outside: differs
syscall("ptrace", 0, 0, 0, 0)

## trace process 1
# refused: EPERM
syscall("ptrace", 16, 1, 0, 0)

## read the memory of process 1
# refused: EPERM
# outside: differs
syscall("process_vm_readv", 1, None, 0, None, 0, 0)

## write to the memory of process 1
# refused: EPERM
# outside: differs
syscall("process_vm_writev", 1, None, 0, None, 0, 0)

## compare kernel addresses
# refused: EPERM
# outside: differs
syscall("kcmp", os.getpid(), os.getpid(), 0, 0, 0)

## take a descriptor of process 1
# refused: EPERM
syscall("pidfd_getfd", os.pidfd_open(1), 0, 0)

## advise the memory of another process
# refused: EPERM
# outside: differs
syscall("process_madvise", -1, 0, 0, 0, 0)

## load a BPF program
# refused: EPERM
# outside: differs
syscall("bpf", 0, None, 0)

## look at the session's keys
# refused: EPERM
# outside: differs
syscall("keyctl", 0, -3, 0)

## add a key
# refused: EPERM
# outside: differs
syscall("add_key", b"no such type", b"", None, 0, 0)

## ask for a key
# refused: EPERM
# outside: differs
syscall("request_key", b"no such type", b"", None, 0)

## set up io_uring
# refused: EPERM
# outside: differs
syscall("io_uring_setup", 8, ctypes.create_string_buffer(200))

## enter io_uring
# refused: EPERM
# outside: differs
syscall("io_uring_enter", -1, 0, 0, 0, 0, 0)

## register with io_uring
# refused: EPERM
# outside: differs
syscall("io_uring_register", -1, 0, 0, 0)

## handle page faults
# refused: EPERM
syscall("userfaultfd", 1)

## count events
# refused: EPERM
# outside: differs
syscall("perf_event_open", None, 0, -1, -1, 0)

## open a file by handle
# refused: EPERM
# outside: differs
syscall("open_by_handle_at", -1, None, 0)

## make a handle
# refused: EPERM
# outside: differs
syscall("name_to_handle_at", -1, b"", None, None, 0)

## load a module
# refused: EPERM
syscall("init_module", None, 0, b"")

## load a module from a file
# refused: EPERM
syscall("finit_module", -1, b"", 0)

## load another kernel
# refused: EPERM
syscall("kexec_load", 0, 0, 0, 1)

## load another kernel from a file
# refused: EPERM
syscall("kexec_file_load", -1, -1, 0, 0, 1)

## restart the machine
# refused: EPERM
# outside: differs
syscall("reboot", 0, 0, 0, 0)

## set the clock
# refused: EPERM
# outside: differs
syscall("clock_settime", 9999, struct.pack("qq", 0, 0))

## set the time of day
# refused: EPERM
# outside: differs
syscall("settimeofday", None, None)

## adjust the clock
# refused: EPERM
# outside: differs
syscall("adjtimex", ctypes.create_string_buffer(400))

## adjust a clock
# refused: EPERM
# outside: differs
syscall("clock_adjtime", 0, ctypes.create_string_buffer(400))

## make all readable memory executable
# refused: EPERM
# outside: differs
syscall("personality", 0x0400000)

## lay memory out predictably
# refused: EPERM
# outside: differs
syscall("personality", 0x0040000)

## ask for the execution domain
# allowed: done: 0
result = syscall("personality", 0xFFFFFFFF)

## call as a 32-bit program
# refused: SIGSYS
import mmap

page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("b814000000cd80c3"))
result = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()

## call as an x32 program
# refused: SIGSYS
# outside: differs
syscall(0x40000000 + 39)

## call what no kernel has
# refused: EPERM or ENOSYS
# runc tells calls that are newer than its profile from those that it leaves out.
syscall(100000)

## swap to a file
# refused: EPERM
# outside: differs
syscall("swapon", b"/nowhere at all", 0)

## reach ports
# refused: EPERM
# outside: differs
syscall("ioperm", 1 << 20, 1, 1)

## raise the privilege for ports
# refused: EPERM
# outside: differs
syscall("iopl", 7)

## account processes
# refused: EPERM
# outside: differs
syscall("acct", b"/nowhere at all")

## set quotas
# refused: EPERM
# outside: differs
syscall("quotactl", 0, b"/nowhere at all", 0, None)

## read the kernel's log
# refused: EPERM
# outside: differs
syscall("syslog", 10, None, 0)

## become root
# refused: EPERM
# outside: differs
syscall("setuid", 0)

## join the group of root
# refused: EPERM
# outside: differs
syscall("setgid", 0)

## drop groups
# refused: EPERM
# outside: differs
syscall("setgroups", 0, None)

## become root in every way
# refused: EPERM
# outside: differs
syscall("setresuid", 0, 0, 0)

## take capabilities
# refused: EPERM
# outside: differs
syscall("capset", None, None)

## keep a capability over exec
# refused: EPERM
checked(libc.prctl(47, 2, 21, 0, 0))

## move one's own memory layout
# refused: EPERM
checked(libc.prctl(35, 1, 0, 0, 0))

## name the machine
# refused: EPERM
# outside: differs
syscall("sethostname", b"x", 1 << 20)

## hold System V shared memory
# refused: EPERM
# outside: differs
syscall("shmget", 0, 4096, 0o1600)

## hold System V messages
# refused: EPERM
# outside: differs
syscall("msgget", 0, 0o1600)

## hold System V semaphores
# refused: EPERM
# outside: differs
syscall("semget", 0, 1, 0o1600)

## open a message queue
# refused: EPERM
# outside: differs
syscall("mq_open", b"codebridge-attack", 0, 0, None)

## make an anonymous file
# refused: EPERM
# outside: differs
syscall("memfd_create", b"x", 0)

## make secret memory
# refused: EPERM
syscall("memfd_secret", 0)

## add a filter that notifies
# refused: EPERM
# outside: differs
syscall("seccomp", 9, 0, None)

## watch file systems
# refused: EPERM
# outside: differs
syscall("fanotify_init", 0, 0)

## hang up the terminal
# refused: EPERM
syscall("vhangup")

## change segment descriptors
# refused: EPERM
# outside: differs
syscall("modify_ldt", 0, None, 0)

## move pages of another process
# refused: EPERM
syscall("move_pages", 1, 0, None, None, None, 0)

## move a process between nodes
# refused: EPERM
syscall("migrate_pages", 1, 0, None, None)

## bind memory to nodes
# refused: EPERM
# outside: differs
syscall("set_mempolicy", 0, None, 0)

## write an extended attribute
# refused: EPERM
# outside: differs
syscall("setxattr", b"/nowhere at all", b"user.x", b"x", 1, 0)

## write to all disks
# refused: EPERM
# outside: differs
syscall("sync")

## run before all others
# refused: EPERM
# outside: differs
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

## be nicer to oneself
# refused: EPERM
# outside: differs
os.nice(-1)

## raise a limit
# refused: ValueError: not allowed to raise maximum limit
import resource

resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 19, 1 << 19))

## type into a terminal
# refused: EPERM
import fcntl

master, terminal = os.openpty()
fcntl.ioctl(terminal, 0x5412, b"x")

## the buffers of a socket
# allowed: done: True
# refused on kubernetes: ENETUNREACH
# outside: differs
# Ignored, as a size above the maximum is: what waits in sockets is no memory of a process.
unix, _ = socket.socketpair()
network = socket.socket()
sizes = socket.SO_SNDBUF, socket.SO_RCVBUF
before = [it.getsockopt(socket.SOL_SOCKET, size) for it in (unix, network) for size in sizes]
for it in unix, network:
    for size in sizes:
        it.setsockopt(socket.SOL_SOCKET, size, 1 << 30)
result = before == [it.getsockopt(socket.SOL_SOCKET, size) for it in (unix, network) for size in sizes]

## the buffers of a socket by force
# refused: EPERM
# refused on kubernetes: ENETUNREACH
socket.socket().setsockopt(socket.SOL_SOCKET, 32, 1 << 30)

## the buffers of a socket by a number that the kernel cuts off
# refused: EPERM
# outside: differs
size = ctypes.c_int(1 << 30)
unix, _ = socket.socketpair()
syscall("setsockopt", unix.fileno(), 1, (1 << 32) + socket.SO_SNDBUF, ctypes.addressof(size), 4)

## the buffers of a socket by a level that the kernel cuts off
# refused: EPERM
# outside: differs
size = ctypes.c_int(1 << 30)
unix, _ = socket.socketpair()
syscall("setsockopt", unix.fileno(), (1 << 32) + 1, socket.SO_SNDBUF, ctypes.addressof(size), 4)

## a filter on a socket
# refused: EPERM
# outside: differs
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))
unix, _ = socket.socketpair()
unix.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, ctypes.addressof(allow)))

## the options of sockets that servers set
# allowed: done
# refused on kubernetes: ENETUNREACH
server = socket.socket(socket.AF_INET6)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
