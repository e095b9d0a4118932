"""The package for Debian: a folder as it will be installed, given to dpkg-deb."""

import gzip
import shutil
import subprocess
import textwrap
from email.utils import formatdate

REVISION = "1"

# A program without libraries runs on every release of Debian; lintian takes it for a library without any.
OVERRIDES = "codebridge: shared-library-lacks-prerequisites\n"

COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: codebridge

Files: *
{holders}
License: Apache-2.0 or Expat
Comment: What the program is linked with is in LICENSES-THIRD-PARTY.txt.gz beside this file.

License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.

License: Expat
{expat}
"""


def write(release, target):
    root = release.work / target.name / "deb"
    release.empty(root)
    package = release.package["name"]
    version = f"{release.version}-{REVISION}"
    install(release, target, root)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(control(release, target, version, size(root)))
    (root / "DEBIAN/md5sums").write_text(sums(root))
    file = release.dist / f"{package}_{version}_{target.debian}.deb"
    # xz: the dpkg of Debian 11 knows no other that is as small.
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, file],
                   check=True, stdout=subprocess.DEVNULL)


def install(release, target, root):
    """Lays out the files as they will be on the machine."""
    shares = root / "usr/share"
    documents = shares / "doc/codebridge"
    put(release.program(target), root / "usr/bin/codebridge", 0o755)
    put(release.completions / "codebridge.bash", shares / "bash-completion/completions/codebridge")
    put(release.completions / "codebridge.fish", shares / "fish/vendor_completions.d/codebridge.fish")
    put(release.completions / "_codebridge", shares / "zsh/vendor-completions/_codebridge")
    for page in release.man.iterdir():
        compress(page.read_bytes(), shares / f"man/man1/{page.name}.gz")
    compress((release.root / "CHANGELOG.md").read_bytes(), documents / "changelog.gz")
    compress(changelog(release).encode(), documents / "changelog.Debian.gz")
    compress(release.licences.read_bytes(), documents / f"{release.licences.name}.gz")
    put(release.root / "README.md", documents / "README.md")
    (documents / "copyright").write_text(copyright(release))
    overrides = shares / "lintian/overrides/codebridge"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(OVERRIDES)


def put(file, path, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, path)
    path.chmod(mode)


def compress(data, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def control(release, target, version, kibibytes):
    summary, _, detail = release.package["description"].partition(": ")
    fields = {
        "Package": release.package["name"],
        "Version": version,
        "Architecture": target.debian,
        "Maintainer": ", ".join(release.package["authors"]),
        "Installed-Size": kibibytes,
        "Suggests": "podman, crun, uidmap, libsecret-tools",
        "Section": "utils",
        "Priority": "optional",
        "Description": summary.removeprefix("An ") + "\n" + textwrap.indent(textwrap.fill(
            f"{detail[:1].upper()}{detail[1:]}. It needs podman, docker, crun or runc.", 76), " "),
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def changelog(release):
    maintainer = ", ".join(release.package["authors"])
    date = formatdate(release.time).replace("-0000", "+0000")
    return (f"codebridge ({release.version}-{REVISION}) unstable; urgency=medium\n\n"
            f"  * Release {release.version}: changelog.gz says what is new.\n\n"
            f" -- {maintainer} <>  {date}\n")


def copyright(release):
    """Returns the notice of the MIT licence, which Debian calls Expat, in the form that Debian's tools read."""
    text = (release.root / "LICENSE-MIT").read_text()
    holders = next(line for line in text.splitlines() if line.startswith("Copyright"))
    holders = holders.replace("Copyright (c)", "Copyright:")
    body = text.split(holders.removeprefix("Copyright: "), 1)[1].strip()
    expat = "\n".join(f" {line}" if line else " ." for line in body.splitlines())
    return COPYRIGHT.format(holders=holders, expat=expat)


def packaged(root):
    return sorted(file for file in (root / "usr").rglob("*") if file.is_file())


def size(root):
    return sum(-(-file.stat().st_size // 1024) for file in packaged(root))


def sums(root):
    names = [str(file.relative_to(root)) for file in packaged(root)]
    return subprocess.run(["md5sum", "--", *names], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
