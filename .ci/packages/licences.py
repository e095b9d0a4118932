"""The licences of the crates that are compiled in: most of them ask that their text goes with the program."""

import json
import re
import subprocess
import textwrap
from collections import defaultdict
from pathlib import Path

NAMES = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)

HEAD = """\
codebridge contains these packages. Where one has a choice of licences, all of them follow.
"""
RULE = "-" * 100 + "\n"


def third_party(triples):
    """Returns the packages of all these targets, and each text once with the packages that have it."""
    packages = {}
    for triple in triples:
        packages |= compiled_in(triple)
    users = defaultdict(list)
    parts = [HEAD, "\n"]
    for package in sorted(packages.values(), key=lambda it: (it["name"], it["version"])):
        name = f"{package['name']} {package['version']}"
        parts.append(f"{name}: {package['license']}\n")
        for text in texts(Path(package["manifest_path"]).parent):
            users[text].append(name)
    for text, names in users.items():
        parts += [RULE, textwrap.fill(", ".join(names), 100), f"\n\n{text}\n"]
    return "".join(parts)


def compiled_in(triple):
    """Returns the packages of others that a program for this target contains, by their ids."""
    words = ["cargo", "metadata", "--format-version=1", "--locked", "--no-default-features", "--filter-platform", triple]
    metadata = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {it["id"]: it for it in metadata["packages"]}
    seen, waiting = set(), [metadata["resolve"]["root"]]
    while waiting:
        package = waiting.pop()
        if package in seen or any("proc-macro" in it["kind"] for it in packages[package]["targets"]):
            continue
        seen.add(package)
        waiting += [it["pkg"] for it in nodes[package]["deps"] if any(kind["kind"] is None for kind in it["dep_kinds"])]
    return {package: packages[package] for package in seen if packages[package]["source"]}


def texts(folder):
    """Returns the licences of a package; white space does not make two of one."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and NAMES.match(file.name))
    for file in files:
        lines = file.read_text(errors="replace").strip().splitlines()
        yield "\n".join(line.rstrip() for line in lines)
