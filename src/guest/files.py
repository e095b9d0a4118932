# The files of the workspace, seen from process 1: which of them a run made or changed, and their content for the host, also
# beside running code. `root` is the folder, as bytes.

import os
import stat
import time

# Entries of the tree that are looked at after each run: folders near the top come first.
MOST = 2000
# Bytes of the list of changed files, and of content in one answer.
LONGEST_LIST = 512 * 1024
CHUNK = 256 * 1024
# The clock that files get their times from: see clock_gettime(2).
CLOCK_REALTIME_COARSE = 5

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe without a writer must not block process 1.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# What is known of each file since the last look; when that was; whether it saw only a part of the tree.
known, looked_at, was_cut = {}, 0, False


def changed():
    """Returns the files that were made or changed since the last call: `SIZE PATH` and a NUL each; `-` in place of the size
    of those that are gone."""
    global known, looked_at, was_cut
    before, began = looked_at, time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    seen, found, length = {}, [], 0
    is_cut = False
    for path, status in tree():
        if path is None:
            is_cut = True
            break
        mark = mark_of(status)
        seen[path] = mark
        if known.get(path) == mark or (was_cut and path not in known and status.st_ctime_ns <= before):
            continue
        line = b"%d %s\0" % (status.st_size, path)
        length += len(line)
        if length > LONGEST_LIST:
            is_cut = True
            break
        found.append(line)
    for path in () if is_cut else known.keys() - seen.keys():
        line = b"- %s\0" % path
        length += len(line)
        if length > LONGEST_LIST:
            break
        found.append(line)
    known, looked_at, was_cut = seen, began, is_cut
    if is_cut:
        # An entry without a path: there is more.
        found.append(b"0 \0")
    return b"".join(found)


def mark_of(status):
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


def expect(entry):
    """Takes a file that the host put there as known: `MARK PATH`."""
    *mark, path = entry.split(b" ", 4)
    try:
        known[path] = tuple(map(int, mark))
    except ValueError:
        # It was forged.
        pass


def tree():
    """Yields the path and the status of each file, and None when there are too many entries."""
    folders, left = [b""], MOST
    for folder in folders:
        try:
            entries = os.scandir(os.path.join(root, folder))
        except OSError:
            # It is gone, not readable, or its path is too long.
            continue
        with entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    yield None, None
                    return
                name = entry.name
                if name[:1] == b"." or name == b"__pycache__":
                    continue
                path = folder + b"/" + name if folder else name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        yield path, entry.stat(follow_symlinks=False)
                except OSError:
                    continue


def answer(request):
    """Answers `START LENGTH PATH`: the size of the file, a newline and its bytes, or `-` and why there are none."""
    start, length, path = request.split(b" ", 2)
    try:
        descriptor = open_file(path)
    except OSError as error:
        return b"-" + (error.strerror or "it cannot be opened").encode("utf-8", "replace")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"-Not a regular file"
        # Behind the end there is nothing, and the kernel takes not every number.
        data = os.pread(descriptor, min(int(length), CHUNK), min(int(start), status.st_size))
        return b"%d\n%s" % (status.st_size, data)
    except OSError as error:
        return b"-" + (error.strerror or "it cannot be read").encode("utf-8", "replace")
    finally:
        os.close(descriptor)


def open_file(path):
    """Opens a file below the root, following no link."""
    *folders, name = path.split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in (*folders, name)):
        raise OSError(0, "Not a path below the workspace")
    descriptor = os.open(root, FOLDER)
    try:
        for folder in folders:
            inner = os.open(folder, FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        return os.open(name, FILE, dir_fd=descriptor)
    finally:
        os.close(descriptor)
