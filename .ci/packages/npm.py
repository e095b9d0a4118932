"""The npm package: one for all machines, with every program of which the release has an archive."""

import json
import re
import tarfile

from . import archive

# As Node.js calls them.
SYSTEMS = {"linux": "linux", "macos": "darwin"}
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}


def write(release):
    programs = {}
    pattern = re.compile(re.escape(f"codebridge-{release.version}-") + r"(\w+)-(linux|macos)\.tar\.gz")
    for file in release.files():
        if match := pattern.fullmatch(file.name):
            with tarfile.open(file) as packed:
                program = packed.extractfile(f"{file.name.removesuffix('.tar.gz')}/codebridge").read()
            programs[match.groups()] = program
    files = {f"package/bin/codebridge-{'-'.join(name)}": program for name, program in programs.items()}
    files["package/bin/codebridge"] = release.root / ".ci/packages/npm.sh"
    files["package/package.json"] = release.work / "package.json"
    files["package/package.json"].write_text(json.dumps(describe(release, programs), indent=2) + "\n")
    for name in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"]:
        files[f"package/{name}"] = release.root / name
    files[f"package/{release.licences.name}"] = release.licences
    archive.pack(release, release.dist / f"codebridge-{release.version}.tgz", files)


def describe(release, programs):
    package = release.package
    return {
        "name": package["name"],
        "version": package["version"],
        "description": package["description"],
        "license": package["license"],
        "author": ", ".join(package["authors"]),
        "bin": {"codebridge": "bin/codebridge"},
        "os": sorted({SYSTEMS[system] for _, system in programs}),
        "cpu": sorted({PROCESSORS[processor] for processor, _ in programs}),
    }
