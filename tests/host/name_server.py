# The name server of the test cluster: knows no name, and says so.
import socket
import sys

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", int(sys.argv[1])))
while True:
    question, sender = server.recvfrom(512)
    # An answer (0x8000) that says that there is no such name (3), as RFC 1035 has it.
    server.sendto(question[:2] + b"\x80\x03" + question[4:], sender)
