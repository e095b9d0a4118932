"""Steps of workflows: what the host is asked, in which order they are numbered, and what is refused."""

import json
import unittest

from guest_client import Guest, Refusal


class Journal:
    """A host's journal, without a disk."""

    def __init__(self, guest, known=None):
        self.known, self.asked = dict(known or {}), []
        for method in "step_begin", "step_finish", "step_fail":
            guest.answers[method] = getattr(self, method)

    def identity(self, step):
        return step["name"], step["key"], step["number"]

    def step_begin(self, step):
        self.asked.append(("begin", *self.identity(step)))
        if self.identity(step) not in self.known:
            return {"finished": False}
        result, arguments = self.known[self.identity(step)]
        if arguments is not None and arguments != step["arguments"]:
            return Refusal("changed", "workflow")
        return {"finished": True, "result": result}

    def step_finish(self, params):
        self.asked.append(("finish", *self.identity(params["step"])))
        self.known[self.identity(params["step"])] = params["result"], params["step"]["arguments"]

    def step_fail(self, params):
        self.asked.append(("fail", params["attempt"], params["error"]))


class Steps(unittest.TestCase):
    workflow = True

    def setUp(self):
        self.guest = Guest()
        given = {"argv": ["w.py"], "file": "w.py", "modules": [], "files": [], "input": False, "workflow": self.workflow}
        self.guest.send(b"Z", 0, json.dumps(given))
        self.journal = Journal(self.guest)

    def tearDown(self):
        self.guest.close()

    def ok(self, code):
        result = self.guest.run(code)
        self.assertEqual(result.status, "ok", result)
        return result.out

    def fails(self, code):
        result = self.guest.run(code)
        self.assertEqual(result.status, "error", result)
        return result.error


class Workflow(Steps):
    def test_a_step_is_begun_called_and_finished(self):
        code = (
            "async def f(a, b=2, **more): return {'sum': a + b, 'more': more, 'pair': (1, 2)}\n"
            "r = await runtime.step('add', f, 1, b=3, name='n')\n"
            "print(r, r.sum, r.pair, await runtime.step('plain', len, 'abc'), await runtime.step('lambda', lambda: f(1)))"
        )
        out = self.ok(code)
        self.assertEqual(out.split(" 4 ")[0], "{'sum': 4, 'more': {'name': 'n'}, 'pair': [1, 2]}")
        self.assertIn("4 [1, 2] 3 {'sum': 3", out)
        self.assertEqual(self.journal.asked[:2], [("begin", "add", None, 1), ("finish", "add", None, 1)])

    def test_finished_steps_are_not_called(self):
        self.journal.known = {("a", None, 1): ({"x": 1}, None), ("a", None, 2): (None, None), ("k", "7", 1): ([2], None)}
        code = (
            "def f(): raise SystemError\n"
            "print((await runtime.step('a', f)).x, await runtime.step('a', f), await runtime.step.options(key=7)('k', f))"
        )
        self.assertEqual(self.ok(code), "1 None [2]\n")
        self.assertEqual([what for what, *_ in self.journal.asked], ["begin"] * 3)

    def test_parallel_steps_are_numbered_in_the_order_of_their_calls(self):
        code = (
            "import asyncio\n"
            "async def f(n):\n    await asyncio.sleep((3 - n) / 100)\n    return n\n"
            "print(await asyncio.gather(*[runtime.step('s', f, n) for n in range(3)]))"
        )
        self.assertEqual(self.ok(code), "[0, 1, 2]\n")
        results = {number: result for (_, _, number), (result, _) in self.journal.known.items()}
        self.assertEqual(results, {1: 0, 2: 1, 3: 2})

    def test_one_name_in_several_tasks_needs_keys(self):
        code = (
            "import asyncio\n"
            "async def f(n): return n\n"
            "async def work(n): return await %s('s', f, n)\n"
            "print(await asyncio.gather(work(1), work(2)))"
        )
        self.assertIn("step 's' is called by several tasks", self.fails(code % "runtime.step"))
        self.assertEqual(self.ok(code % "runtime.step.options(key=n)"), "[1, 2]\n")

    def test_one_key_is_done_once(self):
        code = (
            "import asyncio\ncount = 0\n"
            "async def f():\n    global count\n    count += 1\n    await asyncio.sleep(0.01)\n    return count\n"
            "step = runtime.step.options(key='k')\n"
            "print(await asyncio.gather(step('s', f), step('s', f)), await step('s', f), await step('t', f))"
        )
        self.assertEqual(self.ok(code), "[1, 1] 1 2\n")

    def test_a_step_within_a_step_is_part_of_it(self):
        code = (
            "async def inner(): return await runtime.step('x', lambda: 1)\n"
            "print(await runtime.step('outer', inner), await runtime.step('x', lambda: 2))"
        )
        self.assertEqual(self.ok(code), "1 2\n")
        self.assertEqual(
            self.journal.asked,
            [("begin", "outer", None, 1), ("finish", "outer", None, 1), ("begin", "x", None, 1), ("finish", "x", None, 1)],
        )

    def test_a_failed_step_is_tried_again_and_each_failure_is_journaled(self):
        code = (
            "runtime.step  # loads it\nruntime._guest.part('steps').DELAY = 0.001\nn = 0\n"
            "def f():\n    global n\n    n += 1\n    if n < 3: raise ValueError('no %d' % n)\n    return n\n"
            "print(await runtime.step.options(retries=2)('s', f))"
        )
        self.assertEqual(self.ok(code), "3\n")
        self.assertEqual(
            self.journal.asked[1:], [("fail", 1, "ValueError: no 1"), ("fail", 2, "ValueError: no 2"), ("finish", "s", None, 1)]
        )
        error = self.fails("def g(): raise KeyError('k' * 10**6)\nawait runtime.step('t', g)")
        self.assertTrue(error.startswith("KeyError: "))
        self.assertEqual(len(self.journal.asked[-1][2]), 300)

    def test_what_was_refused_is_not_tried_again(self):
        code = (
            "n = 0\ndef f():\n    global n\n    n += 1\n    error = runtime.MCPError('no')\n    error.kind = 'denied'\n    raise error\n"
            "try: await runtime.step.options(retries=5)('s', f)\nexcept runtime.MCPError: print(n)"
        )
        self.assertEqual(self.ok(code), "1\n")

    def test_an_attempt_may_take_so_long(self):
        code = (
            "import asyncio\n"
            "async def slow(): await asyncio.Event().wait()\n"
            "await runtime.step.options(timeout=0.05)('slow', slow)"
        )
        self.assertIn("step 'slow' took longer than 0.05 s", self.fails(code))
        own = "import asyncio\nasync def f(): raise asyncio.TimeoutError('own')\nawait runtime.step.options(timeout=60)('s', f)"
        self.assertIn("own", self.fails(own))

    def test_a_result_that_is_not_json_is_named_and_not_repeated(self):
        code = "n = 0\ndef f():\n    global n\n    n += 1\n    return %s\nawait runtime.step.options(retries=3)('make', f)"
        for value, words in [
            ("object()", "result of type object is not JSON (Object of type object"),
            ("{'a': [b'x']}", "result of type dict is not JSON (Object of type bytes"),
            ("float('nan')", "result of type float is not JSON"),
            ("'x' * (1 << 20)", "its result has 1048578 bytes as JSON, and a journal takes 1048576"),
        ]:
            error = self.fails(code % value)
            self.assertIn("step 'make' ran, but", error)
            self.assertIn(words, error)
            self.assertEqual(self.ok("print(n)"), "1\n")
            # Another cell is another task.
            self.guest.run("runtime._guest.part('steps').calls.clear()")
        self.assertEqual([what for what, *_ in self.journal.asked], ["begin", "fail"] * 4)

    def test_wrong_calls_are_refused_before_anything_is_asked(self):
        for call, words in [
            ("runtime.step('x' * 1000000, len)", "the name of a step has 1000000 bytes"),
            ("runtime.step('', len)", "has 0 bytes"),
            ("runtime.step(len, 'x')", "a step needs a name first"),
            ("runtime.step('x', 5)", "needs a function"),
            ("runtime.step('x', f())", "needs a function, then its arguments"),
            ("runtime.step.options(retries=-1)", "retries must be"),
            ("runtime.step.options(timeout=0)", "timeout must be"),
            ("runtime.step.options(timeout=float('nan'))", "timeout must be"),
            ("runtime.step.options(key=b'x')", "key must be"),
            ("runtime.step.options(key='x' * 513)", "the key of a step has 513 bytes"),
        ]:
            self.assertIn(words, self.fails("async def f(): pass\n" + call), call)
        self.assertEqual(self.journal.asked, [])

    def test_when_the_journal_fails_so_does_the_step(self):
        self.guest.answers["step_finish"] = Refusal("the workflow has stopped: no space", "workflow")
        self.assertIn("MCPError: the workflow has stopped", self.fails("await runtime.step.options(retries=9)('s', len, 'x')"))
        self.assertEqual(len(self.journal.asked), 1)

    def test_arguments_are_compared_where_they_are_json(self):
        seen = []

        def begin(step):
            seen.append(step["arguments"])
            return {"finished": True, "result": None}

        self.guest.answers["step_begin"] = begin
        self.ok("for a in 1, 1, 2, {'a': 1, 'b': 2}, {'b': 2, 'a': 1}, object(), object(): await runtime.step('s', len, a)")
        self.assertEqual(seen[0], seen[1])
        self.assertNotEqual(seen[0], seen[2])
        self.assertEqual(seen[3], seen[4])
        self.assertEqual(seen[5:], [None, None])


class Elsewhere(Steps):
    workflow = False

    def test_without_a_workflow_a_step_is_a_call(self):
        code = (
            "import asyncio\nasync def f(x): return x\n"
            "async def work(n): return await runtime.step('s', f, {n})\n"
            "print(await asyncio.gather(work(1), work(2)), await runtime.step.options(timeout=5, retries=1, key=1)('t', len, 'ab'))"
        )
        self.assertEqual(self.ok(code), "[{1}, {2}] 2\n")
        self.assertEqual(self.journal.asked, [])


if __name__ == "__main__":
    unittest.main()
