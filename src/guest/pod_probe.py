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


def name_servers():
    """Those of the cluster."""
    try:
        with open("/etc/resolv.conf") as file:
            lines = [line.split() for line in file]
    except OSError:
        return []
    return [words[1].partition("%")[0] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def targets(peer):
    """Name, type and address of what a cluster has."""
    api = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if api:
        port = int(os.environ.get("KUBERNETES_SERVICE_PORT", 443))
        yield "the API server at %s:%d" % (api, port), socket.SOCK_STREAM, (api, port)
    for server in name_servers():
        for kind in socket.SOCK_DGRAM, socket.SOCK_STREAM:
            yield "the name server at %s" % server, kind, (server, 53)
    for node in dict.fromkeys([os.environ.get("CODEBRIDGE_NODE", ""), *gateways()]):
        # The kubelet, ssh, and a port where nobody listens, which a node refuses.
        for port in (10250, 22, 1) if node else ():
            yield "the node at %s" % node, socket.SOCK_STREAM, (node, port)
    if len(peer) == 2:
        yield "another pod at %s" % peer[0], socket.SOCK_STREAM, (peer[0], int(peer[1]))


def answering(targets):
    """The names of what answers, also by a refusal: a wall drops."""
    open_sockets, poll, names = {}, select.poll(), []
    for name, kind, address in targets:
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


def is_behind_profile():
    """Whether the node refuses sockets as codebridge's profile does."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()
    except OSError as error:
        return error.errno == errno.ENETUNREACH
    return False


# Only after its first line is there somebody who reads what it prints.
digits = sys.stdin.readline().strip()
sys.stdout.flush()
peer = sys.stdin.readline().split()
tried = list(targets(peer))
said = {"tried": list(dict.fromkeys(name for name, _, _ in tried)), "profile": is_behind_profile()}
said["before"] = answering(tried)
install(digits)
said["after"] = answering(tried) + list(possible())
sys.stdout.write(json.dumps(said) + "\n")
