"""Archives that are the same for the same files: names in order, one time, no owner."""

import gzip
import io
import tarfile


def write(release, target):
    folder = f"codebridge-{release.version}-{target.name}"
    files = {"codebridge": release.program(target)} | release.documents()
    pack(release, release.dist / f"{folder}.tar.gz", {f"{folder}/{name}": file for name, file in files.items()})


def pack(release, path, files):
    """Writes an archive of files by their names; a value is a file, or the bytes of one that may be executed."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=release.time) as compressed:
        with tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, file in sorted(files.items()):
                data = file if isinstance(file, bytes) else file.read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                member.mtime = release.time
                member.mode = 0o755 if is_program(name) else 0o644
                archive.addfile(member, io.BytesIO(data))


def is_program(name):
    name = name.rpartition("/")[2]
    return name == "codebridge" or name.startswith("codebridge-")
