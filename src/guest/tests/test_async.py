"""Cells that await, and what stays behind in the session's event loop."""

import unittest

from guest_client import Guest
from test_cells import CellTest


class Await(CellTest):
    def test_at_top_level(self):
        result = self.ok("import asyncio\nasync def double(x):\n    await asyncio.sleep(0)\n    return 2 * x\nawait double(21)")
        self.assertEqual(result.out, "42\n")
        self.assertEqual(self.ok("y = await double(2)\nprint(y)").out, "4\n")
        self.assertEqual(self.ok("await asyncio.sleep(0)").out, "")

    def test_loops_comprehensions_and_context_managers(self):
        result = self.ok(
            """
            import asyncio, contextlib
            async def count():
                for i in range(3): yield i
            @contextlib.asynccontextmanager
            async def inside():
                print("in"); yield "here"; print("out")
            async for i in count(): print(i)
            async with inside() as place: print(place)
            [i async for i in count()]
            """
        )
        self.assertEqual(result.out, "0\n1\n2\nin\nhere\nout\n[0, 1, 2]\n")

    def test_statements_before_and_after_share_one_task_and_its_context(self):
        result = self.ok(
            """
            import asyncio, contextvars
            mark = contextvars.ContextVar("mark")
            token = mark.set("set"); before = asyncio.current_task()
            await asyncio.sleep(0)
            (mark.get(), before is asyncio.current_task())
            """
        )
        self.assertEqual(result.out, "('set', True)\n")

    def test_many_things_at_once(self):
        result = self.ok("import asyncio\nsum(await asyncio.gather(*[asyncio.sleep(0.01, i) for i in range(100)]))")
        self.assertEqual(result.out, "4950\n")

    def test_asyncio_run_in_a_cell_without_await(self):
        self.ok("import asyncio\nawait asyncio.sleep(0)")
        for _ in range(2):
            self.assertEqual(self.ok("async def main(): return 'ran'\nasyncio.run(main())").out, "'ran'\n")
        self.assertEqual(self.ok("await asyncio.sleep(0, 'loop is back')").out, "'loop is back'\n")

    def test_the_loop_of_the_session_is_the_current_one_in_plain_cells(self):
        self.ok("import asyncio\nawait asyncio.sleep(0)\nours = asyncio.get_running_loop()")
        self.assertEqual(self.ok("loop = asyncio.get_event_loop()\nloop.run_until_complete(asyncio.sleep(0, loop is ours))").out, "True\n")

    def test_an_exception_shows_the_users_frames_only(self):
        result = self.fails("import asyncio\nasync def bad():\n    await asyncio.sleep(0)\n    raise ValueError('bad')\nawait bad()")
        self.assertEqual(result.error, "ValueError: bad")
        self.assertEqual(result.traceback.count("  File "), 2, result.traceback)
        self.assertNotIn("asyncio/", result.traceback)
        self.assertNotIn("codebridge", result.traceback)

    def test_a_cell_that_cancels_itself_is_an_error(self):
        result = self.fails("import asyncio\nasyncio.current_task().cancel()\nawait asyncio.sleep(1)")
        self.assertRegex(result.error, "CancelledError")

    def test_a_cell_that_stops_the_loop_goes_on(self):
        result = self.ok("import asyncio\nasyncio.get_running_loop().stop()\nawait asyncio.sleep(0.01)\n'done'")
        self.assertEqual(result.out, "'done'\n")

    def test_a_closed_loop_is_replaced(self):
        self.ok("import asyncio\nawait asyncio.sleep(0)\nloop = asyncio.get_running_loop()")
        self.ok("loop.close()")
        self.assertEqual(self.ok("await asyncio.sleep(0, 'new')").out, "'new'\n")

    def test_no_warnings_of_our_own(self):
        with Guest() as guest:
            result = guest.run("import warnings; warnings.simplefilter('always')\nimport asyncio\nawait asyncio.sleep(0)\n1")
            self.assertEqual((result.out, result.err), ("1\n", ""))
            self.assertEqual(guest.run("await asyncio.sleep(0)\n1/0").err, "")

    def test_child_processes(self):
        result = self.ok(
            "import asyncio\np = await asyncio.create_subprocess_exec('echo', 'hello')\nprint('code', await p.wait())"
        )
        self.assertEqual(result.out, "hello\ncode 0\n")


class BackgroundTasks(CellTest):
    def until_printed(self, text):
        """Between calls, or on a slow machine still in the call."""
        self.guest.until(lambda: any(text in result.stdout for result in self.guest.results.values()))

    def test_they_go_on_between_calls(self):
        self.ok(
            """
            import asyncio
            async def tick():
                for i in range(3):
                    await asyncio.sleep(0.01)
                    print("tick", i)
            task = asyncio.create_task(tick())
            await asyncio.sleep(0)
            """
        )
        self.until_printed(b"tick 2")
        self.assertEqual(self.ok("task.done()").out, "True\n")

    def test_a_cell_that_awaits_nothing_can_start_them(self):
        self.ok("import asyncio\nasync def late(): return 'done'")
        self.ok("task = asyncio.create_task(late())")
        self.assertEqual(self.ok("await task").out, "'done'\n")
        # A loop of the cell's own is not in the way of the session's.
        result = self.ok("loop = asyncio.new_event_loop()\nloop.run_until_complete(loop.create_task(late()))")
        self.assertEqual(result.out, "'done'\n")

    def test_they_go_on_in_later_async_cells(self):
        self.ok("import asyncio\nasync def later():\n    await asyncio.sleep(0.05)\n    return 'from before'\nt = asyncio.ensure_future(later())\nawait asyncio.sleep(0)")
        self.assertEqual(self.ok("await t").out, "'from before'\n")

    def test_callbacks_of_threads_reach_the_loop_between_calls(self):
        self.ok("import asyncio, threading\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)")
        self.ok("threading.Timer(0.05, lambda: loop.call_soon_threadsafe(print, 'called back')).start()")
        self.until_printed(b"called back")

    def test_servers_answer_between_calls(self):
        self.ok(
            """
            import asyncio, socket, threading
            async def serve(reader, writer):
                writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            def client():
                with socket.create_connection(server.sockets[0].getsockname()) as s:
                    s.sendall(b"between calls\\n"); print(s.makefile().readline().strip())
            threading.Timer(0.05, client).start()
            """
        )
        self.until_printed(b"BETWEEN CALLS")
        self.ok("server.close()\nawait asyncio.sleep(0)")

    def test_a_failure_is_reported_in_the_cell_it_happens_in(self):
        result = self.ok(
            "import asyncio\nasync def bad(): raise ValueError('nobody looked')\nt = asyncio.create_task(bad())\nawait asyncio.sleep(0.01)"
        )
        self.assertIn("Exception in background task", result.err)
        self.assertIn("raise ValueError('nobody looked')", result.err)
        self.assertEqual(result.err.count("Traceback"), 1)
        self.assertEqual(self.ok("del t").err, "")

    def test_a_failure_between_calls_is_reported_at_once(self):
        with Guest() as guest:
            guest.run("import asyncio\nasync def bad():\n    await asyncio.sleep(0.05); raise ValueError('late')\nt = asyncio.create_task(bad())\nawait asyncio.sleep(0)")
            guest.until(lambda: b"ValueError: late" in guest.results[0].stderr)

    def test_a_failure_that_code_looks_at_is_not_reported(self):
        result = self.ok(
            """
            import asyncio
            async def bad(): raise ValueError("handled")
            print(await asyncio.gather(bad(), bad(), return_exceptions=True))
            t = asyncio.create_task(bad())
            await asyncio.sleep(0.01)
            try: await t
            except ValueError: print("caught")
            """
        )
        self.assertIn("caught", result.out)
        self.assertEqual(result.err, "")

    def test_sys_exit_in_a_background_task_ends_that_task_only(self):
        result = self.ok(
            "import asyncio, sys\nasync def leave(): sys.exit(9)\nt = asyncio.create_task(leave())\nawait asyncio.sleep(0.01)\n'still here'"
        )
        self.assertEqual(result.out, "'still here'\n")
        self.assertIn("SystemExit", result.err)

    def test_a_background_task_that_stops_the_loop_between_calls(self):
        self.ok("import asyncio\nloop = asyncio.get_running_loop()\nloop.call_later(0.02, loop.stop)\nloop.call_later(0.05, print, 'after the stop')\nawait asyncio.sleep(0)")
        self.until_printed(b"after the stop")
        self.assertEqual(self.ok("1").out, "1\n")


if __name__ == "__main__":
    unittest.main()
