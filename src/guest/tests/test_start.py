"""The start: parts that come compiled, and what is offered for the next time."""

import unittest

from guest_client import Guest


class Compiled(unittest.TestCase):
    def offer(self):
        with Guest("offer=1") as guest:
            self.assertEqual(guest.run("6 * 7").out, "42\n")
            return guest.offered

    def test_it_is_offered_when_asked_for_and_used_the_next_time(self):
        with Guest() as guest:
            guest.run("1")
            self.assertIsNone(guest.offered)
        offered = self.offer()
        with Guest("offer=1", compiled=offered) as guest:
            self.assertEqual(guest.run("await __import__('asyncio').sleep(0)\n6 * 7").out, "42\n")
            self.assertIsNone(guest.offered, "what fits is not offered again")
            self.assertIn("ZeroDivisionError", guest.run("1/0").traceback)
            self.assertEqual(guest.run("[n for n in dir() if len(n) == 1 or n in ('os', 'sys', 'marshal')]").out, "[]\n")

    def test_that_of_another_python_is_ignored(self):
        _, _, code = self.offer().partition(b"\n")
        for other in b"'2.7.18'\n" + code, b"", b"\n", b"garbage without a line":
            with Guest("offer=1", compiled=other) as guest:
                self.assertEqual(guest.run("6 * 7").out, "42\n")
                self.assertEqual(guest.offered.partition(b"\n")[2][:1], code[:1])


class Waiting(unittest.TestCase):
    def test_it_says_that_it_is_there_and_loads_what_it_is_told_to(self):
        seen = "import sys; 'asyncio' in sys.modules"
        for number, loaded in (0, "False\n"), (1, "True\n"):
            with Guest() as guest:
                for count in range(1, 3):
                    guest.send(b"L", number)
                    guest.until(lambda: guest.frames.count((b"L", number, 0)) == count)
                self.assertEqual(guest.run(seen).out, loaded)
                self.assertEqual(guest.run("await __import__('asyncio').sleep(0)\n6 * 7").out, "42\n")
                self.assertEqual(guest.run("[n for n in dir() if 'asyncio' in n]").out, "[]\n")

    def test_process_1_answers_also_while_code_runs(self):
        with Guest() as guest:
            guest.start("import time\nwhile True: time.sleep(0.01)")
            for count in range(1, 3):
                guest.send(b"L", 2)
                guest.until(lambda: guest.frames.count((b"L", 2, 0)) == count)


if __name__ == "__main__":
    unittest.main()
