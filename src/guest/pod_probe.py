# The probe in a pod, after filter.py: what answers before the filter is in force, and after it.

import errno
import json
import os
import select
import socket
import sys

PATIENCE = 1.0
FAMILIES = {"AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40}
# One question for the address of a name, in the form of RFC 1035.
QUESTION = b"\0\1\1\0\0\1\0\0\0\0\0\0\12kubernetes\7default\3svc\7cluster\5local\0\0\1\0\1"


def gateways():
    """The nodes, in most clusters."""
    try:
        with open("/proc/net/route") as file:
            fields = [line.split() for line in file]
    except OSError:
        return
    for field in fields[1:]:
        if len(field) > 2 and field[1] == "00000000":
            number = bytes.fromhex(field[2])
            yield ".".join(str(byte) for byte in reversed(number))


def targets():
    """Name, type and address of what a cluster has."""
    api = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if api:
        port = int(os.environ.get("KUBERNETES_SERVICE_PORT", 443))
        yield "the API server at %s:%d" % (api, port), socket.SOCK_STREAM, (api, port)
    if api.count(".") == 3:
        # Where most clusters have their name server.
        server = api.rsplit(".", 1)[0] + ".10"
        yield "the name server at %s" % server, socket.SOCK_DGRAM, (server, 53)
        yield "the name server at %s" % server, socket.SOCK_STREAM, (server, 53)
    for node in gateways():
        for port in 22, 10250:
            yield "the node at %s:%d" % (node, port), socket.SOCK_STREAM, (node, port)


def answering():
    """The names of what answers, also by a refusal: a wall drops."""
    open_sockets, poll, names = {}, select.poll(), []
    for name, kind, address in targets():
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            one = socket.socket(family, kind)
            one.setblocking(False)
            error = one.connect_ex(address)
            if kind == socket.SOCK_DGRAM and not error:
                one.send(QUESTION)
        except OSError:
            continue
        if error not in (0, errno.EINPROGRESS):
            continue
        open_sockets[one.fileno()] = name, kind, one
        poll.register(one, select.POLLOUT if kind == socket.SOCK_STREAM else select.POLLIN)
    import time

    end = time.monotonic() + PATIENCE
    while open_sockets and time.monotonic() < end:
        for descriptor, _ in poll.poll(max(0, end - time.monotonic()) * 1000):
            name, kind, one = open_sockets.pop(descriptor)
            poll.unregister(descriptor)
            error = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error in (0, errno.ECONNREFUSED) and name not in names:
                names.append(name)
    return names


def possible():
    """What only works without the filter."""
    for name, family in FAMILIES.items():
        try:
            socket.socket(family, socket.SOCK_STREAM if family in (2, 10, 40) else socket.SOCK_RAW).close()
            yield "a socket of " + name
        except OSError:
            pass


digits = sys.stdin.readline().strip()
before = answering()
install(digits)
after = answering() + list(possible())
sys.stdout.write(json.dumps({"before": before, "after": after}) + "\n")
