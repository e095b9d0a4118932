# There is nothing to reach, and nothing but the families that the standard library needs. `HOST` says where the host listens.

## the metadata service
# refused: ENETUNREACH
socket.create_connection(("169.254.169.254", 80), 5)

## a public address
# refused: ENETUNREACH
socket.create_connection(("192.0.2.1", 53), 5)

## a public address in IPv6
# refused: ENETUNREACH
# refused on docker: EADDRNOTAVAIL
socket.socket(socket.AF_INET6).connect(("2001:db8::1", 53))

## a datagram
# refused: ENETUNREACH
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))

## a broadcast
# refused: ENETUNREACH
caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
caller.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
caller.sendto(b"x", ("255.255.255.255", 9))

## a name
# refused: gaierror: [Errno -3] Temporary failure in name resolution
socket.getaddrinfo("name.invalid", 80)

## a port of the host's loopback
# refused: ECONNREFUSED
# refused on kubernetes: ENETUNREACH
# outside: differs
socket.create_connection(("127.0.0.1", HOST["port"]), 5)

## an abstract socket of the host
# refused: ECONNREFUSED
# outside: differs
socket.socket(socket.AF_UNIX).connect("\0" + HOST["abstract"])

## a socket in a folder of the host
# refused: ENOENT
# outside: differs
socket.socket(socket.AF_UNIX).connect(HOST["socket"])

## the sockets of engines
# refused: ENOENT
for place in "/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock":
    if os.path.exists(place):
        raise RuntimeError(place)
socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock")

## the own loopback
# allowed: done
# refused on kubernetes: ENETUNREACH
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname(), 5)

## a socket of the own
# allowed: done
listener = socket.socket(socket.AF_UNIX)
listener.bind("/tmp/own.sock")
listener.listen()
socket.socket(socket.AF_UNIX).connect("/tmp/own.sock")

## the interfaces
# allowed: done: ['lo']
# allowed on kubernetes: done: ['lo', 'eth0']
result = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]

## another interface
# refused: EPERM
# refused on kubernetes: ENETUNREACH
import fcntl

fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22s", b"lo", 0x40, b""))

## raw TCP
# refused: EPERM
# refused on kubernetes: ENETUNREACH
# outside: differs
socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)

## raw ICMP
# refused: EPERM
# refused on kubernetes: ENETUNREACH
# outside: differs
socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)

## packets
# refused: EPERM
# outside: differs
socket.socket(socket.AF_PACKET, socket.SOCK_RAW)

## routes by netlink
# refused: EPERM
# outside: differs
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)

## audit by netlink
# refused: EPERM
# outside: differs
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)

## the hypervisor
# refused: EPERM
socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)

## the kernel's ciphers
# refused: EPERM
socket.socket(38, socket.SOCK_SEQPACKET)

## bluetooth
# refused: EPERM
# outside: differs
socket.socket(31, socket.SOCK_RAW)

## a car
# refused: EPERM
# outside: differs
socket.socket(29, socket.SOCK_RAW)

## a cluster
# refused: EPERM
# outside: differs
socket.socket(30, socket.SOCK_RAW)

## express data paths
# refused: EPERM
# outside: differs
socket.socket(44, socket.SOCK_RAW)

## a family with more than 32 bits
# refused: EPERM
# outside: differs
syscall("socket", 16 | 1 << 32, 3, 0)

## forged credentials
# refused: EPERM
# outside: differs
left, right = socket.socketpair()
right.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("3i", os.getpid(), 0, 0))])
