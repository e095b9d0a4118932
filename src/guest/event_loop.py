# Cells that await: one asyncio event loop for the whole session. It runs while such a cell runs and while the session
# waits for the next frame, so background tasks go on between calls. `guest` is the interpreter.

import asyncio
import sys

channel = guest.channel
interrupts = guest.interrupts
# Flags of the code of generators, coroutines and generator-based coroutines.
RESUMABLE = 0x20 | 0x80 | 0x100


class SessionLoop:
    def __init__(self):
        self.loop = None
        self.idle = False
        # The cell's task, the tasks that are older than it, and the exception it ended with.
        self.task, self.older, self.error = None, (), None
        # Interrupts of this cell; whether one came before there was a task.
        self.interrupts, self.cancel_early = 0, False
        # Tasks that failed and may still be awaited.
        self.failed = []

    def open(self):
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            self.loop.set_task_factory(self.make_task)
            self.loop.add_reader(channel.down, self.on_frames)
        # asyncio.run() in a cell of its own takes it away.
        asyncio.set_event_loop(self.loop)

    def make_task(self, loop, coroutine, **options):
        task = asyncio.Task(coroutine, loop=loop, **options)
        task.add_done_callback(self.on_task_done)
        return task

    # A cell.

    def run(self, codes):
        """Runs a cell until its own code is done; tasks that it started go on."""
        self.task, self.error = None, None
        self.interrupts, self.cancel_early = 0, False
        interrupts.divert = self.divert
        try:
            self.open()
            self.older = asyncio.all_tasks(self.loop)
            self.task = self.loop.create_task(self.drive(codes))
            self.task.add_done_callback(lambda task: self.loop.stop())
            if self.cancel_early:
                self.task.cancel()
            while not self.task.done():
                self.turn()
        finally:
            interrupts.divert = None
        with interrupts:
            self.report_failed()
        self.raise_outcome()

    async def drive(self, codes):
        try:
            value = None
            for code in codes:
                value = eval(code, guest.namespace)
                if code.co_flags & 0x80:
                    value = await value
            guest.display(value)
        except BaseException as error:
            # Kept with its traceback: a cancelled task does not keep it on every version.
            self.error = error

    def turn(self):
        try:
            self.loop.run_forever()
        except KeyboardInterrupt:
            # The interrupt hit another task than that of the cell, which was meant.
            self.task.cancel()
        except SystemExit as error:
            report("A background task ended with %r" % error)

    def raise_outcome(self):
        task, error = self.task, self.error
        self.task, self.error, self.older = None, None, ()
        try:
            if error is None:
                # None, or an interrupt in the first or last steps of `drive`.
                error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, asyncio.CancelledError) and interrupts.count:
                error = KeyboardInterrupt().with_traceback(error.__traceback__)
            if error is not None:
                raise error
        finally:
            # It refers to this frame.
            del error

    def divert(self, frame):
        """Handles an interrupt. True: the task of the cell was cancelled. False: it has to be raised where the code is."""
        self.interrupts += 1
        if self.task is None:
            self.cancel_early = True
            return True
        if self.task.done():
            return True
        current = asyncio.current_task(self.loop)
        # A task of an earlier cell gets it only when it blocks the loop.
        if current is None:
            may_raise = in_user_code(frame)
        else:
            may_raise = (current not in self.older or self.interrupts > 1) and in_coroutine(frame)
        if not may_raise:
            self.loop.call_soon_threadsafe(self.task.cancel)
        return not may_raise

    # Between runs.

    def wait(self):
        """Runs background tasks until a frame has come, or something else needs attention."""
        self.open()
        waiter = guest.part("questions").Waiter(channel.inbox)
        waiter.wake = lambda: self.loop.call_soon_threadsafe(self.stop_waiting)
        channel.waiters[id(waiter)] = waiter
        self.idle = True
        try:
            if not channel.inbox:
                self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            report("A background task ended with %r" % error)
        finally:
            self.idle = False
            del channel.waiters[id(waiter)]

    def stop_waiting(self):
        # A stop requested during the wait must not stop what runs later.
        if self.idle:
            self.loop.stop()

    def on_frames(self):
        read_frames()
        if channel.inbox:
            self.stop_waiting()

    # Failures of tasks that nobody awaits.

    def on_task_done(self, task):
        if task is not self.task and not task.cancelled() and task._log_traceback:
            self.failed.append(task)
            if self.idle:
                # After a task that awaits it has run.
                self.loop.call_soon(self.report_failed)

    def report_failed(self):
        failed, self.failed = self.failed, []
        for task in failed:
            if task._log_traceback:
                text = guest.part("report").render(task.exception())
                report("Exception in background task %s:\n%s" % (task.get_name(), text.rstrip()))


def in_user_code(frame):
    while frame is not None and frame.f_code is not SessionLoop.turn.__code__:
        if frame.f_code.co_filename in guest.sources:
            return True
        frame = frame.f_back
    return False


def in_coroutine(frame):
    """Whether the frame is in the coroutine of a task, not in the code around it, where an exception would lose the task."""
    while frame.f_back is not None and frame.f_back.f_code is not asyncio.Handle._run.__code__:
        frame = frame.f_back
    return frame.f_back is None or frame.f_code.co_flags & RESUMABLE


def report(text):
    try:
        print(text, file=sys.stderr)
    except (AttributeError, ValueError):
        # User code took sys.stderr away or closed it.
        pass


# Questions that are awaited.


class Asker:
    """Waits for an answer in an event loop, in any thread."""

    def __init__(self):
        self.answer = None
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()

    def wake(self):
        try:
            self.loop.call_soon_threadsafe(self.finish)
        except RuntimeError:
            # That loop is closed.
            pass

    def finish(self):
        if not self.future.done():
            self.future.set_result(None)


async def ask(method, params, **how):
    """Asks as questions.ask does, while other tasks of the running loop go on."""
    questions = guest.part("questions")
    payload = questions.encode(method, params, how.get("default"))
    asker = Asker()
    number = None
    try:
        with interrupts:
            number = questions.put(payload, asker)
            watch(asker.loop, 1)
        await asker.future
    finally:
        with interrupts:
            if number is not None:
                questions.forget(number)
                watch(asker.loop, -1)
    return questions.decode(asker.answer, how["parse"]) if "parse" in how else questions.decode(asker.answer)


# Loop -> number of questions that are awaited in it.
watched = {}


def watch(loop, change):
    """Lets a loop read frames as long as a task in it waits for one. The loop of the session always does."""
    if guest.loop is not None and loop is guest.loop.loop:
        return
    watched[loop] = watched.get(loop, 0) + change
    if watched[loop]:
        loop.add_reader(channel.down, read_frames)
    else:
        del watched[loop]
        loop.remove_reader(channel.down)


def read_frames():
    """Reads what has arrived, unless another thread reads."""
    with interrupts:
        if channel.reader.acquire(False):
            try:
                if guest.part("questions").readable(0):
                    channel.read()
            finally:
                channel.reader.release()
            channel.pass_on()
