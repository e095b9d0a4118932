#!PYTHON -S
# The docker of a laptop. Which engine is meant is left to the real client, which knows the contexts of this home; what that
# engine says of itself, and what a newer client says, are the texts of FIXTURES, which tell where each is from. Everything
# else is done by the real client and the engine behind the product's socket.
#
# LOG gets a line for each call. In STATE, a JSON object: client (whose words are spoken where nobody answers, null for the
# real one's own).

import json
import os
import re
import socket
import subprocess
import sys

words = sys.argv[1:]
with open("LOG", "a") as log:
    log.write(json.dumps(words) + "\n")
state = json.load(open("STATE"))
home = os.environ["HOME"]


def text(name):
    body = open("FIXTURES").read().split(f"== {name}\n", 1)[1].split("\n== ", 1)[0]
    return "\n".join(line for line in body.splitlines() if not line.startswith("#")).strip() + "\n"


def product_of(url):
    """The product whose current context in the fixtures has its socket where this URL has it, but for the home."""
    for name in ("docker-desktop", "colima", "colima-profile", "orbstack", "rancher-desktop"):
        line = next(line for line in text(f"contexts {name}").splitlines() if " * " in line)
        documented = re.search(r"unix://\S+", line).group().replace("/Users/ann", home)
        if documented == url:
            return name
    return None


def endpoint():
    """Where the real client would go with the same words and variables."""
    named = words[1:2] if words[:1] == ["--context"] else []
    ask = ["DOCKER", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"] + named
    return subprocess.run(ask, capture_output=True, text=True).stdout.strip()


def answers(url):
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(url.removeprefix("unix://"))
        return True
    except OSError:
        return False


def described(name):
    return dict(line.split(": ", 1) for line in text(f"info {name}").splitlines())


command = words[2:] if words[:1] == ["--context"] else words
verb = command[0] if command else ""
mounted = next((word for word in command if word.startswith("--mount=type=bind,")), None)
mute = bool(state["client"]) and verb not in ("context", "--version")
# Whatever is the real client's alone is left to it at once: it takes its time to say where it goes.
if not (mute or mounted or verb == "info"):
    os.execv("DOCKER", ["docker"] + words)
url = endpoint()
product = product_of(url)
if product and mute and not answers(url):
    said = text(f"unreachable {state['client']}")
    documented = re.search(r"unix:///\S+?\.sock", said).group().removeprefix("unix://")
    said = said.replace(documented, url.removeprefix("unix://"))
    sys.stderr.write(said)
    sys.exit(125 if verb == "run" else 1)
if product and verb == "info":
    done = subprocess.run(["DOCKER"] + words, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    said = json.loads(done.stdout) if done.stdout.startswith("{") else None
    if said and said.get("ID"):
        one = described(product)
        said.update(
            Name=one["Name"], OperatingSystem=one["Operating System"], KernelVersion=one["Kernel Version"]
        )
    print(json.dumps(said) if said else done.stdout, end="")
    sys.exit(done.returncode)
if product == "docker-desktop" and mounted:
    done = subprocess.run(["DOCKER"] + words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    # The engine has refused; Docker Desktop does so before it, in its own words.
    if "source path does not exist" in done.stderr:
        path = re.search(r'"src=([^"]*)"', mounted).group(1)
        done.stderr = text("mounts denied").replace("/Users/ann/MCPs", path)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
os.execv("DOCKER", ["docker"] + words)
