# How much memory the values of earlier cells may take. `guest` is the interpreter.

import os
import resource

# Bytes, where no limit can be read.
USUAL_LIMIT = 512 << 20
LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"


def limit():
    """Returns the memory limit of the sandbox."""
    limits = [int(guest.settings[name]) for name in ("data", "address_space") if name in guest.settings]
    for path in LIMITS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            # No such file, or "max".
            pass
    return min([size for size in limits if size < 1 << 48], default=USUAL_LIMIT)


ENOUGH = limit() // 2
PAGE = os.sysconf("SC_PAGE_SIZE")


def is_memory_short():
    """Whether this process takes more than half of the memory. The sizes of values themselves cannot be known."""
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= ENOUGH:
        # It never took more: cheaper to know than what it takes now.
        return False
    try:
        with open("/proc/self/statm", "rb", 0) as file:
            return int(file.read().split()[1]) * PAGE > ENOUGH
    except OSError:
        return True
