# Put before each flood.
import time

end = time.monotonic() + SECONDS


def running():
    return time.monotonic() < end


def attempt(ask, *arguments):
    try:
        ask(*arguments)
    except Exception:
        pass
