# Forged frames, from the interpreter and past process 1. `up` and `down` are the interpreter's ends of its control channel, `send`
# writes a frame: type, number of the run, payload, and the length that it claims.

## a type that is in no table
# refused: error: its protocol was broken by a frame of type b'Z'
send(b"Z", 1, b"x")
wait()

## more bytes than any frame has
# refused: error: its protocol was broken by a frame of type b'T' and 4294967295 bytes
send(b"T", run, b"", claim=0xFFFFFFFF)
wait()

## another hello
# refused: error: its protocol was broken by a frame of type b'H'
send(b"H", 0, b"protocol=1 python=3.14.0")
wait()

## the end of another run
# refused: error: its protocol was broken by a frame of type b'D' about run
send(b"D", run + 1, b"ok 0\n")
wait()

## the end of this run in a form that is none
# refused: error: malformed frame of type 'D'
send(b"D", run, b"splendid\n")
wait()

## the end of this run before its end
# allowed: success
# next: timeout
# The code goes on without anybody to hear it, and the next call has to wait for it.
send(b"D", run, b"ok 0\n")
import time

time.sleep(1000)

## half a frame
# timeout: 1
# refused: timeout: stopped after 1 s
os.write(up, b"T\0\0")
wait()

## a closed channel
# refused: error: the code ended its interpreter with exit status 70
os.close(up)
os.close(down)

## a channel closed at its other end only
# refused: error: its protocol was broken by a closed control channel
os.close(up)
wait()

## notices without end
# allowed: success
for number in range(50000):
    send(b"N", run, b"\x1b[31mnotice %d" % number)

## tracebacks without end
# timeout: 1
# refused: timeout: stopped after 1 s
while True:
    send(b"T", run, b"x" * 65536)

## questions without an end and a reader
# timeout: 2
# refused: timeout
question = b'{"method":"list_saved_tools","params":{}}'
number = 1
while True:
    number += 1
    send(b"Q", number, question)

## a question of 24 MiB
# allowed: success: cannot read this question
question = b'{"params":[' + b"0," * (12 << 20) + b'0],"method":"output"}'
print(ask(question))

## a question as deep as it is long
# allowed: success: cannot read this question
print(ask(b'{"method":"output","params":' + b"[" * (1 << 20) + b"]" * (1 << 20) + b"}"))

## a tool outside of the folder
# allowed: success: 5 refused: '../escape' is not the name of a function
import json

names = "../escape", "/tmp/escape", "a/b", "nul\0", "x" * 100000
answers = [ask(json.dumps({"method": "save_tool", "params": {"name": name, "source": "x"}}).encode()) for name in names]
print(sum("error" in answer for answer in answers), "refused:", answers[0]["error"])

## a frame past process 1
# refused: error: the sandbox sent a frame of
# refused on crun 1.28: error: PermissionError: [Errno 13] Permission denied: '/proc/1/fd/
# It ends the session whatever it claims to be. That crun leaves a sandbox's pipes to the user of the host.
os.write(host(), b"O" + bytes(4) + b"\xff\xff\xff\xff" * 20)
wait()

## garbage past process 1
# refused: error: the sandbox sent a frame of
# refused on crun 1.28: error: PermissionError: [Errno 13] Permission denied: '/proc/1/fd/
os.write(host(), bytes(range(255, 0, -1)))
wait()

## other code in process 1
# refused: error: the sandbox went away
# refused on kubernetes: error: ended: Error, exit status 133
maps = [line.split() for line in open("/proc/1/maps")]
with open("/proc/1/mem", "r+b", buffering=0) as memory:
    for fields in maps:
        if "x" in fields[1] and len(fields) > 5 and fields[5].startswith("/"):
            start, end = (int(number, 16) for number in fields[0].split("-"))
            memory.seek(start)
            memory.write(b"\xcc" * (end - start))
signal_process_1()
wait()

## notices that steer a terminal
# allowed: success: �[31mred
send(b"N", run, b"\x1b[31mred")

## a notice longer than all output
# allowed: success: nnnnnnnnnn
send(b"N", run, b"n" * (1 << 16))
