# relay.py LISTEN CONNECT: passes on what comes to one socket to another, so that a server can be made to fall silent by
# stopping this process.

import contextlib
import socket
import sys
import threading


def pump(source, target):
    # What one side still has to say is passed on whether or not it listens any longer.
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def serve(client):
    with client, socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(sys.argv[2])
        except OSError:
            return
        there = threading.Thread(target=pump, args=(client, server), daemon=True)
        there.start()
        pump(server, client)
        # The server is done: whatever else the client says, nobody hears it.
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RD)
        there.join()


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(100)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
