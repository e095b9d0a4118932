#!PYTHON -S
# A runtime that obeys a script. The scenario is a JSON object: for each of `probe`, `launch`, `delete` and other commands
# a list of steps, by default those of a runtime that works. Steps: {"say": TEXT}, {"complain": TEXT}, {"flood": BYTES} (on
# standard error), {"bytes": HEX} (on standard output), {"exit": STATUS}, {"hang": true}, {"ignore_term": true},
# {"leave_child": true} (which holds standard error open), {"state": true} and {"remove_state": true} (the sandbox's state
# folder), {"guest": "hello"} (reads what the bridge sends, says hello), {"guest": "done"} (reads up to a
# run, ends it well), {"guest": "wait"} (reads up to a run).

import json
import os
import signal
import sys
import time

scenario = json.load(open("SCENARIO"))
words = sys.argv[1:]


def note(what, pid):
    with open("LOG", "a") as log:
        log.write(json.dumps({"argv": words, "what": what, "pid": pid}) + "\n")


def is_probe():
    bundle = words[words.index("--bundle") + 1]
    return "codebridge" in json.load(open(os.path.join(bundle, "config.json")))["process"]["args"][-1]


def command():
    for word in words:
        if word == "run":
            return "probe" if is_probe() else "launch"
        if word in ("delete", "kill", "state", "info", "image", "ps", "rm", "pull"):
            return word
    return "other"


def state_folder():
    return os.path.join(words[words.index("--root") + 1], words[-1])


def read_exactly(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data


def frame(kind, number, payload):
    os.write(1, kind + number.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload)


def next_run():
    while True:
        header = read_exactly(9)
        read_exactly(int.from_bytes(header[5:], "big"))
        if header[:1] == b"R":
            return int.from_bytes(header[1:5], "big")


def play(step):
    (what, value), = step.items()
    if what == "say":
        os.write(1, value.encode())
    elif what == "complain":
        os.write(2, value.encode())
    elif what == "flood":
        line = b"x" * 1023 + b"\n"
        for _ in range(value // len(line)):
            os.write(2, line)
    elif what == "bytes":
        os.write(1, bytes.fromhex(value))
    elif what == "exit":
        os._exit(value)
    elif what == "hang":
        while True:
            time.sleep(600)
    elif what == "ignore_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif what == "leave_child":
        if not os.fork():
            os.close(0)
            os.close(1)
            note("child", os.getpid())
            while True:
                time.sleep(600)
    elif what == "state":
        os.makedirs(state_folder())
    elif what == "remove_state":
        os.rmdir(state_folder())
    elif value == "hello":
        read_exactly(int.from_bytes(read_exactly(8), "big"))
        frame(b"H", 0, b"protocol=1 python=3.14.0")
    elif value == "done":
        frame(b"D", next_run(), b"ok 0\n")
    elif value == "wait":
        next_run()


what = command()
note(what, os.getpid())
usual = {"probe": [{"say": "codebridge"}], "launch": [{"guest": "hello"}] + [{"guest": "done"}] * 1000}
for step in scenario.get(what, usual.get(what, [])):
    play(step)
