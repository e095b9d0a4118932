"""Processes: children of user code, how the interpreter ends, what the supervisor makes of it."""

import os
import signal
import subprocess
import threading
import time
import types
import unittest

from guest_client import BOOT, IN_CHROOT, PYTHON, Ended, Guest, blob, frame, source
from test_cells import CellTest


def gone(pid):
    """Waits for the end of a process that is not our child."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with open("/proc/%d/stat" % pid) as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            # The second when it ends between the opening of its file and the reading.
            return True
        time.sleep(0.01)
    return False


class Children(CellTest):
    def test_their_output_is_captured_in_order(self):
        result = self.ok("import subprocess, os\nprint('a')\nsubprocess.run(['echo', 'b'])\nos.system('echo c; echo e >&2')\nprint('d')")
        self.assertEqual((result.out, result.err), ("a\nb\nc\nd\n", "e\n"))

    def test_what_they_print_is_not_taken_for_frames(self):
        result = self.ok("import os\nos.system(r\"printf 'X\\0\\0\\0\\0\\0\\0\\0\\0'\")")
        self.assertEqual(result.stdout, b"X" + b"\0" * 8 + b"0\n")

    def test_a_forked_child_that_reaches_the_end_of_the_cell_ends_there(self):
        for end, status in (
            ("pass", 0),
            ("raise SystemExit(7)", 7),
            ("raise ValueError('in the child')", 1),
            ("exit('text')", 1),
        ):
            self.ok("import os, sys, time\npids = []")
            result = self.run_cell("pid = os.fork()\nif pid: pids.append(os.waitpid(pid, 0)[1])\nelse:\n    print('child'); %s" % end)
            self.assertEqual(result.status, "ok")
            self.assertEqual(result.out, "child\n")
            self.assertEqual(self.ok("[os.WEXITSTATUS(s) for s in pids], [os.WTERMSIG(s) for s in pids]").out, "([%d], [0])\n" % status)
            self.assertEqual("ValueError: in the child" in result.err, "ValueError" in end)

    def test_an_interrupted_forked_child_ends_without_output(self):
        self.ok("import os, signal")
        code = "pid = os.fork()\nif not pid:\n    print('child')\n    raise KeyboardInterrupt\nos.WTERMSIG(os.waitpid(pid, 0)[1])"
        result = self.ok(code)
        self.assertEqual((result.out, result.err), ("child\n2\n", ""))

    def test_the_same_in_an_async_cell(self):
        result = self.ok("import asyncio, os\nawait asyncio.sleep(0)\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: print('child')")
        self.assertEqual(result.out, "child\n0\n")
        self.assertEqual(self.ok("await asyncio.sleep(0, 1)").out, "1\n")

    def test_a_fork_in_a_background_task_between_runs(self):
        self.ok(
            """
            import asyncio, os
            async def split():
                await asyncio.sleep(0.02)
                pid = os.fork()
                if pid: print("ended", os.waitpid(pid, 0)[1])
            task = asyncio.create_task(split())
            await asyncio.sleep(0)
            """
        )
        self.guest.until(lambda: b"ended 0" in self.guest.results[0].stdout)
        self.assertEqual(self.ok("1").out, "1\n")

    def test_multiprocessing_with_functions_of_the_session(self):
        result = self.ok(
            """
            import multiprocessing
            def square(x): return x * x
            with multiprocessing.Pool(2) as pool: print(pool.map(square, range(4)))
            from concurrent.futures import ProcessPoolExecutor
            with ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))
            """
        )
        self.assertEqual(result.out, "[0, 1, 4, 9]\n[0, 1, 4, 9]\n")

    def test_multiprocessing_can_still_spawn(self):
        result = self.ok("import multiprocessing, os\nif __name__ == '__main__':\n    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(abs, [-1]))")
        self.assertEqual(result.out, "[1]\n")
        with Guest() as guest:
            result = guest.run("import multiprocessing as m\nm.set_start_method('spawn')\nm.get_start_method()")
            self.assertEqual(result.out, "'spawn'\n")

    def test_a_pool_that_does_not_find_a_function_of_the_session_ends(self):
        result = self.guest.run(
            "import multiprocessing\ndef f(x): return x\npool = multiprocessing.get_context('spawn').Pool(2)\npool.map(f, range(40), 1)"
        )
        self.assertIn("a new Python without the functions and variables of this code", result.error, result)
        result = self.guest.run("try: pool.apply(abs, [1])\nfinally:\n    pool.terminate()\n    pool.join()")
        self.assertIn("multiprocessing.get_context('fork')", result.error, result)
        self.assertEqual(self.guest.run("with multiprocessing.Pool(2) as pool: print(pool.map(f, [1, 2]))").out, "[1, 2]\n")

    def test_threads(self):
        result = self.ok("import threading\nts = [threading.Thread(target=print, args=('t%d' % i,)) for i in range(20)]\nfor t in ts: t.start()\nfor t in ts: t.join()")
        self.assertEqual(sorted(result.out.split()), sorted("t%d" % i for i in range(20)))

    def test_an_exception_in_a_thread_is_shown_with_its_line(self):
        result = self.ok("import threading\ndef bad(): raise ValueError('in a thread')\nt = threading.Thread(target=bad); t.start(); t.join()")
        self.assertIn("def bad(): raise ValueError('in a thread')", result.err)

    def test_private_descriptors_are_out_of_the_way_and_not_inherited(self):
        code = """
import os, subprocess
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
child = subprocess.run(["sh", "-c", "ls /proc/self/fd 2>/dev/null | wc -l"], capture_output=True, text=True, close_fds=False)
print([fd for fd in range(3, 1000) if is_open(fd)], int(child.stdout) <= 5)
"""
        with Guest() as guest:
            self.assertEqual(guest.run(code).out, "[] True\n")

    def test_default_signals_for_children(self):
        result = self.ok("import signal\n[signal.getsignal(s) is signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGQUIT)]")
        self.assertEqual(result.out, "[True, True, True, True]\n")


class Ends(unittest.TestCase):
    def end_of(self, code, settings=""):
        with Guest(settings) as guest:
            self.number = guest.start(code)
            end = guest.wait_end()
            self.result = guest.results[self.number]
            return end

    def test_exit_and_signals(self):
        for code, end in (
            ("import os; os._exit(3)", Ended("exit 3", 3)),
            ("import os; os._exit(0)", Ended("exit 0", 0)),
            ("import os; os.abort()", Ended("signal 6", 134)),
            ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", Ended("signal 15", 143)),
            ("import os, signal; os.killpg(0, signal.SIGKILL)", Ended("signal 9", 137)),
            ("import ctypes; ctypes.string_at(0)", Ended("signal 11", 139)),
        ):
            self.assertEqual(self.end_of(code), end, code)

    def test_what_was_written_before_is_kept(self):
        self.end_of("print('x' * 200000)\nprint('last')\nimport os; os.abort()")
        self.assertEqual(self.result.stdout, b"x" * 200000 + b"\nlast\n")

    def test_the_end_between_runs(self):
        with Guest() as guest:
            os.kill(int(guest.run("import os\nprint(os.getpid())").out), signal.SIGTERM)
            self.assertEqual(guest.wait_end(), Ended("signal 15", 143))

    def test_children_left_behind_are_killed(self):
        with Guest() as guest:
            child = int(guest.run("import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nprint(child.pid)").out)
            guest.start("import os; os._exit(0)")
            self.assertEqual(guest.wait_end(), Ended("exit 0", 0))
            self.assertTrue(gone(child))

    def test_signals_to_the_supervisor_do_nothing(self):
        with Guest() as guest:
            guest.run("import os, signal\nfor s in 'INT', 'TERM', 'HUP', 'QUIT', 'PIPE': os.kill(os.getppid(), getattr(signal, 'SIG' + s))")
            self.assertEqual(guest.run("'alive'").out, "'alive'\n")

    def test_the_host_hangs_up(self):
        guest = Guest()
        pids = guest.run("import os, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nprint(os.getpid(), child.pid)").out.split()
        guest.start("while True: pass")
        guest.process.stdin.close()
        self.assertEqual(guest.process.wait(30), 0)
        self.assertTrue(all(gone(int(pid)) for pid in pids))
        guest.process.stdout.close()

    def test_the_host_hangs_up_before_the_blob_is_whole(self):
        for data in b"", blob()[:5], blob()[:100], blob()[:-1]:
            process = subprocess.Popen([*PYTHON, "-B", "-c", BOOT], stdin=subprocess.PIPE)
            process.communicate(data)
            self.assertEqual(process.returncode, 0)

    def test_the_host_stops_reading(self):
        guest = Guest()
        pid = int(guest.run("import os\nos.getpid()").out)
        guest.start("while True: print('x' * 1000)")
        guest.process.stdout.close()
        guest.process.wait(30)
        self.assertTrue(gone(pid))
        guest.process.stdin.close()

    def test_memory_bound_of_the_settings(self):
        with Guest("address_space=%d" % (300 << 20)) as guest:
            result = guest.run("keep = []\nwhile True: keep.append(bytearray(10 << 20))")
            self.assertEqual(result.error, "MemoryError")
            self.assertEqual(guest.run("len(keep) > 5").out, "True\n")
            result = guest.run("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))")
            if os.getuid():
                self.assertIn("ValueError", result.error)
            self.assertEqual(guest.run("resource.getrlimit(resource.RLIMIT_AS)[0] > 0").status, "ok")

    def test_memory_exhausted_by_small_objects(self):
        with Guest("address_space=%d" % (200 << 20)) as guest:
            result = guest.run("keep = []\ndef fill():\n    while True: keep.append([None])\nfill()")
            self.assertEqual(result.error, "MemoryError", result)
            guest.run("del keep[:]")
            self.assertEqual(guest.run("'alive'").out, "'alive'\n")

    def test_process_bound_of_the_settings(self):
        with Guest("data=%d address_space=%d processes=7" % (1 << 30, 4 << 30)) as guest:
            self.assertIn(str(1 << 30), guest.run("import resource\nresource.getrlimit(resource.RLIMIT_DATA)").out)
            self.assertEqual(guest.run("import resource\nresource.getrlimit(resource.RLIMIT_NPROC)").out, "(7, 7)\n")
            self.assertEqual(guest.run("resource.getrlimit(resource.RLIMIT_AS)[1]").out, "%d\n" % (4 << 30))


class Hostile(unittest.TestCase):
    """Frames that user code forges on the private descriptors end the session, and nothing else."""

    FIND = """
import os, stat, fcntl
def usable(fd, mode):
    try: return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == mode and stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError: return False
down = [fd for fd in range(900, 1024) if usable(fd, os.O_RDONLY)][0]
up = [fd for fd in range(900, 1024) if usable(fd, os.O_WRONLY) and os.fstat(fd).st_ino not in (os.fstat(1).st_ino, os.fstat(2).st_ino)][0]
"""

    def forge(self, code):
        with Guest() as guest:
            guest.run(self.FIND)
            self.number = guest.start(code + "\nimport time\ntime.sleep(1000)")
            end = guest.wait_end()
            self.assertEqual(end, Ended("exit 70", 70))
            self.notices = guest.results[self.number].notices
            self.assertTrue(self.notices and "protocol was broken" in self.notices[0], guest.results)
            self.assertNotIn(self.number, guest.done)

    def write(self, data):
        self.forge("os.write(up, %r)" % data)

    def test_unknown_types(self):
        for kind in b"Z", b"\0", b"O", b"E", b"X", b"R", b"A":
            self.write(frame(kind, 2, b"text"))

    def test_frames_out_of_place(self):
        self.write(frame(b"H", 0, b"protocol=1"))
        self.write(frame(b"D", 1, b"ok 0\n"))
        self.write(frame(b"D", 99, b"ok 0\n"))
        self.write(frame(b"T", 0, b"text"))
        self.write(frame(b"N", 3, b"text"))

    def test_frames_that_are_too_large(self):
        self.write(b"T" + (2).to_bytes(4, "big") + (5 << 20).to_bytes(4, "big"))
        self.write(b"Q" + (2).to_bytes(4, "big") + (0xFFFFFFFF).to_bytes(4, "big"))
        self.write(b"D" + (2).to_bytes(4, "big") + (1 << 17).to_bytes(4, "big"))

    def test_a_flood_of_garbage(self):
        self.forge("while True: os.write(up, os.urandom(4096))")

    def test_a_closed_channel(self):
        self.forge("os.close(up)")
        self.assertIn("closed control channel", self.notices[0])

    def test_a_forged_end_of_run_ends_only_the_session(self):
        with Guest() as guest:
            guest.run(self.FIND)
            number = guest.start("os.write(up, %r)\n" % frame(b"D", 2, b"ok 0\n"))
            self.assertEqual(guest.finish(number).status, "ok")
            self.assertEqual(guest.wait_end(), Ended("exit 70", 70))

    def test_everything_closed(self):
        with Guest() as guest:
            guest.start("import os\nos.closerange(0, 2000)")
            end = guest.wait_end()
            self.assertEqual(end, Ended("exit 70", 70))

    def test_frames_in_pieces_and_many_at_once(self):
        with Guest() as guest:
            for byte in frame(b"R", 1, b"print('pieces')"):
                guest.send_raw(bytes((byte,)))
            self.assertEqual(guest.finish(1).out, "pieces\n")
            guest.send_raw(frame(b"C", 2, b"{}") + frame(b"I", 1) + frame(b"R", 2, b"'many'"))
            self.assertEqual(guest.finish(2).out, "'many'\n")

    def test_output_goes_on_when_the_interpreter_does_not_read(self):
        with Guest() as guest:
            number = guest.start("import sys\nfor line in range(100000): print('x' * 50)\nprint('end')")
            # More than the pipe to the interpreter holds, and nobody there reads it now.
            sender = threading.Thread(target=guest.send, args=(b"C", 1, b"{}" + b" " * (8 << 20)))
            sender.start()
            self.assertTrue(guest.finish(number).out.endswith("end\n"))
            sender.join()
            self.assertEqual(guest.run("1").out, "1\n")

    def test_a_second_run_before_the_first_is_done_is_an_error_of_the_host(self):
        with Guest(stderr=subprocess.DEVNULL) as guest:
            guest.start("import time; time.sleep(1000)")
            guest.start("1")
            self.assertEqual(guest.wait_end().status, 70)


class Pumping(unittest.TestCase):
    def test_a_pipe_that_is_never_empty_is_left_after_what_it_could_hold(self):
        """The part itself, with a writer that fills the pipe again at once."""
        part = types.ModuleType("supervisor")
        exec(compile(source("supervisor.py"), "supervisor.py", "exec"), part.__dict__)
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        self.addCleanup(os.close, write_end)
        os.write(write_end, b"x" * 60000)
        supervisor = part.Supervisor(0, -1, -1, -1, -1, read_end, -1)
        supervisor.outputs = {read_end: b"O"}
        sent = []

        def send_host(kind, number, payload):
            sent.append(len(payload))
            self.assertLess(sum(sent), 2 * part.PIPE_CAPACITY)
            os.write(write_end, payload)

        supervisor.send_host = send_host
        supervisor.drain()
        self.assertGreaterEqual(sum(sent), part.PIPE_CAPACITY)


class ProcessOne(unittest.TestCase):
    """In a pid namespace, where the supervisor is process 1."""

    def setUp(self):
        prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        try:
            works = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
        except OSError:
            works = False
        if not works:
            self.skipTest("no pid namespace can be made here")
        self.guest = Guest(prefix=prefix)
        self.addCleanup(self.guest.close)

    def test_it_is_process_one_and_the_interpreter_leads_a_group(self):
        result = self.guest.run("import os\nos.getppid(), os.getpgrp() == os.getpid()")
        self.assertEqual(result.out, "(1, True)\n")

    def test_signals_to_it_do_nothing(self):
        code = "import os, signal\nfor s in 'INT', 'TERM', 'HUP', 'QUIT', 'KILL', 'STOP', 'USR1', 'PIPE', 'CHLD': os.kill(1, getattr(signal, 'SIG' + s))"
        self.assertEqual(self.guest.run(code).status, "ok")
        self.assertEqual(self.guest.run("'alive'").out, "'alive'\n")

    def test_orphans_are_reaped(self):
        code = """
import os, time
def orphan():
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0); return
    if os.fork() == 0: time.sleep(0.05)
    os._exit(0)
for _ in range(20): orphan()
def others():
    found = []
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) not in (1, os.getpid()): found.append(name)
    return found
deadline = time.monotonic() + 30
while others() and time.monotonic() < deadline: time.sleep(0.01)
others()
"""
        if IN_CHROOT:
            self.skipTest("the guest does not see /proc")
        self.assertEqual(self.guest.run(code).out, "[]\n")

    def test_all_processes_end_with_it(self):
        self.guest.start("import os, subprocess\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nos._exit(5)")
        self.assertEqual(self.guest.wait_end(), Ended("exit 5", 5))


class OutOfMemory(unittest.TestCase):
    """In a control group of its own, which it sees as the container would."""

    V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

    def setUp(self):
        if IN_CHROOT:
            self.skipTest("the guest does not see /sys")
        root, limit = (self.V1, "memory.limit_in_bytes") if os.path.isdir(self.V1) else (self.V2, "memory.max")
        self.group = os.path.join(root, "guest-test-%d" % os.getpid())
        try:
            os.mkdir(self.group)
            self.addCleanup(self.remove)
            with open(os.path.join(self.group, limit), "w") as file:
                file.write(str(60 << 20))
        except OSError as error:
            self.skipTest("no control group can be made here: %s" % error)
        script = 'echo $$ > "$0/cgroup.procs" && mount --bind "$0" %s && exec "$@"' % root
        self.prefix = ["unshare", "-m", "sh", "-c", script, self.group]

    def remove(self):
        deadline = time.monotonic() + 30
        while True:
            try:
                return os.rmdir(self.group)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def test_the_end_says_so(self):
        for _ in range(3):
            with Guest(prefix=self.prefix) as guest:
                guest.start("keep = []\nwhile True: keep.append(bytearray(1 << 20))")
                self.assertEqual(guest.wait_end(), Ended("signal 9 oom", 137))
        # The group's count stands at three now, which is not this one's affair.
        with Guest(prefix=self.prefix) as guest:
            guest.start("import os; os._exit(3)")
            self.assertEqual(guest.wait_end(), Ended("exit 3", 3))


if __name__ == "__main__":
    unittest.main()
