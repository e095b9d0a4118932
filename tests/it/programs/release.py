"""Packs programs that are no programs, as .ci/release does it with real ones: release.py ROOT FOLDER"""

import os
import sys
from pathlib import Path

ROOT, FOLDER = map(Path, sys.argv[1:])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / ".ci"))
os.environ["SOURCE_DATE_EPOCH"] = "1700000000"

from packages import archive, deb, npm  # noqa: E402
from packages.release import Release, Target  # noqa: E402

release = Release(ROOT, FOLDER)
for path in [release.man / "codebridge.1", release.completions / "codebridge.bash",
             release.completions / "codebridge.fish", release.completions / "_codebridge", release.licences]:
    path.parent.mkdir(exist_ok=True)
    path.write_text("text\n")
for triple in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "aarch64-apple-darwin"]:
    target = Target(triple)
    program = release.program(target)
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho {target.name} "$@"\n')
    program.chmod(0o755)
    archive.write(release, target)
    if target.system == "linux":
        deb.write(release, target)
npm.write(release)
release.write_sums()
