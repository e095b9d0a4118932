# Process 1, and others.

## kill process 1
# allowed: done: alive
# The kernel takes no such signal for the first process of a namespace.
import select

os.kill(1, signal.SIGKILL)
result = "alive" if not select.select([os.pidfd_open(1)], [], [], 0.2)[0] else "gone"

## stop process 1
# allowed: done: False
os.kill(1, signal.SIGSTOP)
result = open("/proc/1/stat").read().rpartition(")")[2].split()[0] in "Tt"

## every signal to process 1
# allowed: done: alive
import select

for number in sorted(signal.valid_signals()):
    os.kill(1, number)
result = "alive" if not select.select([os.pidfd_open(1)], [], [], 0.2)[0] else "gone"

## a forged signal to process 1
# refused: EPERM
information = struct.pack("5i", signal.SIGCHLD, 0, 1, 1, 1) + bytes(108)
syscall(129, 1, signal.SIGCHLD, information)

## a signal to a process of the host
# refused: ESRCH
# outside: differs
os.kill(HOST["pid"], 0)

## a process of higher priority
# refused: EACCES
# outside: differs
os.setpriority(os.PRIO_PROCESS, 0, -5)

## real time
# refused: EPERM
# outside: differs
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
