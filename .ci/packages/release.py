"""The release: its version and time, and the folders where its parts are. Everything comes from Cargo.toml and git."""

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path


class Target:
    """A target of the compiler, with the names that others give to it."""

    def __init__(self, triple):
        self.triple = triple
        self.processor = triple.split("-")[0]
        self.system = "macos" if triple.endswith("apple-darwin") else "linux"
        self.name = f"{self.processor}-{self.system}"
        self.debian = {"x86_64": "amd64", "aarch64": "arm64"}[self.processor]


class Release:
    """A release of the checkout in `root`; `folder` is for its parts, and else the one of cargo."""

    def __init__(self, root, folder=None):
        self.root = root
        metadata = json.loads(self.output("cargo", "metadata", "--format-version=1", "--no-deps", "--locked"))
        (self.package,) = (it for it in metadata["packages"] if it["name"] == "codebridge")
        self.version = self.package["version"]
        self.time = int(os.environ.get("SOURCE_DATE_EPOCH") or self.output("git", "log", "-1", "--format=%ct"))
        self.target_directory = folder or Path(metadata["target_directory"])
        self.dist = self.target_directory / "dist"
        self.work = self.target_directory / "release-work"
        self.man = self.work / "man"
        self.completions = self.work / "completions"
        self.wheels = self.work / "wheels"
        self.licences = self.work / "LICENSES-THIRD-PARTY.txt"
        for made in (self.work, self.dist):
            made.mkdir(parents=True, exist_ok=True)

    def output(self, *words):
        return subprocess.run(words, cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout

    def empty(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def program(self, target):
        return self.work / target.name / "codebridge"

    def take(self, wheel, target):
        """Takes the wheel into the release, and the program and the bill of materials out of it."""
        program = self.program(target)
        self.empty(program.parent)
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            (binary,) = (name for name in names if name.endswith(".data/scripts/codebridge"))
            (bill,) = (name for name in names if name.endswith(".cyclonedx.json"))
            program.write_bytes(archive.read(binary))
            program.chmod(0o755)
            # It names packages of the checkout by their folders.
            bill = archive.read(bill).replace(str(self.root).encode(), b"/codebridge")
            (self.dist / f"codebridge-{self.version}.cdx.json").write_bytes(bill)
        self.copy(wheel)

    def copy(self, file):
        shutil.copyfile(file, self.dist / file.name)

    def documents(self):
        """Returns the files beside the program, by their paths in an archive."""
        names = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]
        files = {name: self.root / name for name in names}
        files[self.licences.name] = self.licences
        for folder, path in [(self.man, "man/man1"), (self.completions, "completions")]:
            files |= {f"{path}/{file.name}": file for file in sorted(folder.iterdir())}
        return files

    def remove_others(self):
        """Removes the files of other versions; those of this one may come from another machine."""
        for file in self.files():
            if self.version not in file.name:
                file.unlink()

    def files(self):
        return sorted(file for file in self.dist.iterdir() if file.is_file())

    def write_sums(self):
        sums = self.dist / "SHA256SUMS"
        lines = [
            f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in self.files() if file != sums
        ]
        sums.write_text("".join(lines))
