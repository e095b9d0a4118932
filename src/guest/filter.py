# Shuts this process and all that it starts out of the network, in a pod: the host sends a seccomp filter, which is in
# force before any user code runs. https://man7.org/linux/man-pages/man2/prctl.2.html

SET_SECCOMP, FILTER_MODE, SET_NO_NEW_PRIVILEGES = 22, 2, 38
INTERNET, STREAM, UNREACHABLE = 2, 1, 101


def install(digits):
    """Installs a program of `struct sock_filter`, in hexadecimal digits, and makes sure that it holds."""
    import ctypes

    instructions = bytes.fromhex(digits)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]

    program = Program(len(instructions) // 8, instructions)
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(option, *arguments):
        words = [ctypes.c_ulong(word) for word in arguments]
        if libc.prctl(option, *words):
            number = ctypes.get_errno()
            raise OSError(number, "prctl %d failed with error %d" % (option, number))

    prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(program), 0, 0)
    if libc.socket(INTERNET, STREAM, 0) >= 0 or ctypes.get_errno() != UNREACHABLE:
        raise OSError("the seccomp filter does not hold")
