"""Files of the workspace: which ones a run changed, and their content."""

import os
import tempfile
import unittest

from guest_client import IN_CHROOT, Guest


@unittest.skipIf(IN_CHROOT, "it sees other files than we do")
class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "w"))
        self.guest = Guest("workspace=%s/w" % self.folder)
        self.addCleanup(self.guest.close)
        self.run_code("import os; os.chdir(%r)" % (self.folder + "/w"))

    def run_code(self, code):
        """Runs code; returns the files that it changed, with their sizes."""
        result = self.guest.run(code)
        self.assertIsNone(result.error or None)
        entries = [entry.partition(b" ") for entry in result.files.split(b"\0") if entry]
        self.gone = {os.fsdecode(path) for size, _, path in entries if size == b"-"}
        return {os.fsdecode(path): int(size) for size, _, path in entries if size != b"-"}

    def read(self, path, start=0, length=1 << 20):
        return self.guest.read_file(path, start, length)

    def test_made_and_changed_files_are_named_once(self):
        self.assertEqual(self.run_code("open('a', 'w').write('abc')"), {"a": 3})
        self.assertEqual(self.run_code("1"), {})
        self.assertEqual(self.run_code("os.makedirs('s/t'); open('s/t/b c', 'w').write('x'); open('a', 'a').write('d')"), {"a": 4, "s/t/b c": 1})
        self.assertEqual(self.run_code("os.rename('a', 'z'); os.unlink('s/t/b c')"), {"z": 4})
        self.assertEqual(self.gone, {"a", "s/t/b c"})
        self.assertEqual(self.run_code("open('z', 'r+').write('D')"), {"z": 4})

    def test_hidden_files_links_and_pipes_are_not_named(self):
        code = (
            "os.makedirs('.cache/x'); os.makedirs('__pycache__'); os.symlink('/etc', 'link'); os.mkfifo('pipe')\n"
            "for path in '.x', '.cache/x/y', '__pycache__/z': open(path, 'w').close()"
        )
        self.assertEqual(self.run_code(code), {})

    def test_a_large_tree_is_looked_at_in_part(self):
        changed = self.run_code("for n in range(3000): open('f%d' % n, 'w').close()")
        self.assertEqual(len(changed), 2001)
        self.assertIn("", changed)
        # What comes into view later is not new.
        self.assertEqual(set(self.run_code("for n in range(0, 3000, 2): os.unlink('f%d' % n)")), set())

    def test_hostile_names_are_sent_as_they_are(self):
        code = "for name in b'a\\nb', b'\\xff', b'\\x1b[2J', 'x' * 255: open(name, 'w').close()"
        self.assertEqual(set(self.run_code(code)), {"a\nb", "\udcff", "\x1b[2J", "x" * 255})
        # Longer than a path may be.
        code = "for n in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('deep', 'w').close()"
        self.assertEqual(self.run_code(code), {})

    def test_parts_of_files_are_read_beside_running_code(self):
        self.run_code("open('big', 'wb').write(bytes(range(256)) * 2000); os.mkdir('s')")
        number = self.guest.start("import time, os\nwhile not os.path.exists('stop'): time.sleep(0.001)")
        self.assertEqual(self.read("big", 5, 3), b"512000\n\5\6\7")
        self.assertEqual(len(self.read("big")), 7 + 256 * 1024)
        self.assertEqual(self.read("big", 600000), b"512000\n")
        open(os.path.join(self.folder, "w", "stop"), "w").close()
        self.guest.finish(number)

    def test_a_part_behind_every_file_is_empty_and_the_session_lives(self):
        self.run_code("open('a', 'w').write('a')")
        self.assertEqual(self.read("a", 2**64 - 1), b"1\n")
        self.assertEqual(self.read("a"), b"1\na")

    def test_no_path_leads_elsewhere(self):
        open(os.path.join(self.folder, "secret"), "w").close()
        self.run_code("os.symlink('../secret', 'link'); os.symlink('..', 'up'); os.mkfifo('pipe'); os.mkdir('s')")
        for path in "../secret", "link", "up/secret", "/etc/passwd", "s", "pipe", "", ".", "s/../../secret", "nothing":
            self.assertEqual(self.read(path)[:1], b"-", path)
        self.assertEqual(self.guest.run("1").out, "1\n")


if __name__ == "__main__":
    unittest.main()
