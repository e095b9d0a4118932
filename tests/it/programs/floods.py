# Each after attacks/frames_prelude.py. What is sent is never more than the protocol allows.

# %% some_of_everything
import json

name = b"x" * ((1 << 20) + 1024)
question = b'{"method":"%s","params":{"server":"%s","tool":"%s"}}'
refused = sum("error" in ask(question % (method, name, name)) for method in (b"describe", b"tools", b"tool"))
zeros = b",0" * (1 << 19)
nobody = b'{"params":{"server":"other","tool":"t","arguments":{"a":[0' + zeros + b']}},"method":"call"}'
refused += ask(nobody).get("kind") == "server"
small = json.dumps({"method": "tools", "params": {"server": "fake", "tool": "tool-x"}}).encode()
for number in range(1 << 20, (1 << 20) + 500):
    send(b"Q", number, small)
for number in range(1 << 20, (1 << 20) + 10000):
    send(b"W", number, b"")
print(refused, "refused")

# %% questions
import json

METHODS = {
    "output": ["stream"],
    "save_tool": ["name", "source"],
    "list_saved_tools": ["x"],
    "servers": ["aliases"],
    "server": ["server"],
    "describe": ["server"],
    "tool": ["server", "tool"],
    "tools": ["server", "tool"],
    "search": ["query"],
    "call": ["server", "tool"],
    "nope": ["x"],
}
USUAL = {"server": "fake", "tool": "tool-1", "name": "f", "source": "def f(): pass", "query": "x", "run_id": 1, "arguments": {}}
# Large enough to count for the whole bridge, and the largest.
LARGE, LARGEST = (1 << 20) + 1024, 64 << 20


def filled(size, before, after, unit):
    """A question of a size, with so many of these in its middle."""
    return before + unit * ((size - len(before) - len(after)) // len(unit)) + after


def parts(method, key, quote):
    """A question around the value of this key, which is not in it."""
    text = json.dumps({"method": method, "params": {**USUAL, key: None}}).encode()
    head, tail = text.split(b'"%s": null' % key.encode())
    return head + b'"%s": ' % key.encode() + quote[:1], quote[1:] + tail


answered = 0
for method, keys in METHODS.items():
    for key in keys:
        answer = ask(filled(LARGE, *parts(method, key, b'""'), b"x"))
        answered += "error" in answer or method == "list_saved_tools"
# Values take many times the bytes of their text.
head, tail = parts("servers", "aliases", b"[]")
answered += "error" in ask(filled(4 * LARGE, head + b'"a"', tail, b',"a"'))
nobody = filled(LARGE, b'{"params":{"server":"other","tool":"t","arguments":{"a":[0', b']}},"method":"call"}', b",0")
answered += ask(nobody).get("kind") == "server"
some = filled(LARGEST, b'{"params":{"server":"fake","tool":"tool-1","arguments":{"b":[0', b']}},"method":"call"}', b",0")
answered += ask(some).get("kind") == "arguments"
print(answered, "answered")

# %% many_questions
import json

USUAL = {"server": "fake", "tool": "tool-x", "aliases": ["fake"], "name": "f", "source": "", "query": "tools that say it", "run_id": 1, "arguments": {}}
METHODS = "output", "list_saved_tools", "servers", "server", "describe", "tools", "search", "call", "nope"
number = 1 << 20
for method in METHODS:
    payload = json.dumps({"method": method, "params": USUAL}).encode()
    first = number
    # Nobody reads the answers.
    for _ in range(3000):
        number += 1
        send(b"Q", number, payload)
    # The last ones are withdrawn before they are begun.
    for withdrawn in range(first, number + 1):
        send(b"W", withdrawn, b"")
print("sent")

# %% frames
for kind in b"W", b"N", b"T":
    for _ in range(3000):
        send(kind, run, b"" if kind == b"W" else b"x")
for _ in range(2):
    send(b"N", run, b"n" * (64 << 10))
    send(b"T", run, b"t" * (4 << 20))
os.write(1, b"o" * (8 << 20))
os.write(2, b"e" * (8 << 20))

# %% withdrawals_past_the_supervisor
import time

frames = b"".join(b"W" + number.to_bytes(4, "big") + bytes(4) for number in range(100000))
end = time.monotonic() + 2
try:
    pipe = host()
except PermissionError:
    pass
else:
    while time.monotonic() < end:
        rest = memoryview(frames)
        while rest:
            rest = rest[os.write(pipe, rest) :]

# %% unread_results
import json
import time

big = json.dumps({"method": "call", "params": {"server": "fake", "tool": "big", "arguments": {"bytes": 20 << 20}}}).encode()
for number in range(200):
    send(b"Q", 1 << 20 | number, big)
time.sleep(4)
print("still answered" if "ok" in ask(b'{"method":"list_saved_tools","params":{}}') else "lost")
