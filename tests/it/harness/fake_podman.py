#!PYTHON -S
# The podman of a system without containers of its own: its machine is a file, and what it would hand to the engine in the
# machine goes to a real podman service. What it says are the texts of FIXTURES, which tell where each is from.
#
# The machine, a JSON object in STATE: version, exists, running, last_up, init_seconds and start_seconds (how long they
# take), up_at (a time at which somebody else's start is done), shared (whether folders of the host are seen there), ssh (whether it
# answers), takes_volumes, start_fails, os, url (of the service), calls (what was done with the machine), looks (how often
# it was asked whether anything runs in it).

import fcntl
import json
import os
import sys
import time

words = sys.argv[1:]
lock = open("STATE.lock", "w")


class Machine:
    def __enter__(self):
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.it = json.load(open("STATE"))
        if self.it.get("up_at") and time.time() >= self.it["up_at"]:
            self.it.update(running=True, up_at=None)
        return self.it

    def __exit__(self, *_):
        with open("STATE.new", "w") as file:
            json.dump(self.it, file)
        os.rename("STATE.new", "STATE")
        fcntl.flock(lock, fcntl.LOCK_UN)


def text(name):
    body = open("FIXTURES").read().split(f"== {name}\n", 1)[1].split("\n== ", 1)[0]
    return "\n".join(line for line in body.splitlines() if not line.startswith("#")).strip() + "\n"


def fail(message, status=125):
    sys.stderr.write(message)
    sys.exit(status)


def listed(it):
    if not it["exists"]:
        return []
    # As that version writes it, with the state of ours.
    one = json.loads(text("list 5.8" if it["version"].startswith("5") else "list 4.3"))[0]
    one.update(Running=it["running"], Starting=bool(it.get("up_at")), LastUp=it["last_up"])
    return [one]


def machine(what, rest):
    with Machine() as it:
        version = it["version"]
        if what not in ("list", "info"):
            it["calls"].append([what] + rest)
        if what == "list":
            machines = listed(it)
            if version == "3.4":
                if "json" in rest:
                    print("json\n" * len(machines), end="")
                else:
                    up = "Currently running" if it["running"] else "2 days ago"
                    print(f"podman-machine-default*\t{up}\n" * len(machines), end="")
            else:
                print(json.dumps(machines, indent=4), end="")
            return
        if what == "info":
            if version in ("3.4", "4.1"):
                fail("Error: unrecognized command `podman machine info`\nTry 'podman machine --help' for more information.\n")
            said = json.loads(text("machine info 5.8" if version.startswith("5") else "machine info 4.3"))
            said["Host"]["OS"] = it["os"]
            return print(json.dumps(said))
        if what == "init":
            if it["exists"]:
                fail("Error: podman-machine-default: VM already exists\n")
            it["exists"] = True
            # Real ones take minutes; progress is told ten times a second.
            time.sleep(it["init_seconds"])
            return print(text("init 5.8"), end="")
        if not it["exists"]:
            fail("Error: podman-machine-default: VM does not exist\n")
        if what == "set":
            if "--volume" in rest and not it["takes_volumes"]:
                fail(text("set volume 4.3"))
            it["shared"] = it["shared"] or "--volume" in rest
            return
        if what == "stop":
            # The one moment at which it is written down when it was up.
            it.update(running=False, last_up=f"2026-11-20T14:00:00.{len(it['calls'])}Z")
            return print('Machine "podman-machine-default" stopped successfully')
        if what == "ssh":
            if not it["running"]:
                fail(text("ssh stopped 4.3"))
            if not it["ssh"]:
                fail("ssh: connect to host localhost port 50571: Connection refused\n", 255)
            script = rest[1] if it["shared"] else rest[1].replace("/", "/not-here/", 1)
            shell = script
        if what == "start":
            if it["running"] or it.get("up_at"):
                fail(text("start twice 5.8" if version.startswith("5") else "start twice 4.3"))
            if it["start_fails"]:
                fail(text("start failed 4.9"))
            it["up_at"] = time.time() + it["start_seconds"]
            seconds = it["start_seconds"]
    if what == "ssh":
        os.execve("/bin/sh", ["sh", "-c", shell], {"PATH": "/usr/bin:/bin"})
    time.sleep(seconds)
    with Machine() as it:
        it.update(running=True, up_at=None)
    print(text("start 4.3"), end="")


connection = None
if words[:1] == ["--connection"]:
    connection, words = words[1], words[2:]
if words[:1] == ["--version"]:
    with Machine() as it:
        print("podman version", it["version"])
elif words == ["--help"]:
    with Machine() as it:
        print(text("help 4.3" if it["os"] == "linux" else "help 4.3 remote"), end="")
elif words[:1] == ["machine"]:
    machine(words[1], words[2:])
else:
    with Machine() as it:
        if connection not in (None, "podman-machine-default", "podman-machine-default-root"):
            fail(text("unknown connection 5.8"))
        if not it["running"]:
            name = "4.3 ssh" if it["version"] == "4.3" else it["version"]
            fail(text(f"unreachable {name}"))
        if connection and words == ["ps", "--quiet"]:
            it["looks"] += 1
        if connection and connection.endswith("-root"):
            sys.exit(0)
        url = it["url"]
    os.execv("PODMAN", ["podman", "--remote", "--url", url] + words)
