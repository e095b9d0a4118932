# Steps of a workflow: the host has the results of those that finished, also in earlier runs; the others are done. `guest` is
# the interpreter.

import asyncio
import hashlib
import inspect
import json
import random
import threading
import weakref
from contextvars import ContextVar

LONGEST_NAME = 512
LONGEST_RESULT = 1 << 20
SHOWN = 80
# Seconds before the first retry, each of the next waits twice as long, and the most.
DELAY, LONGEST_DELAY = 0.5, 30
# Errors that another attempt would not change.
FINAL = "denied", "arguments", "server", "workflow"

runtime = guest.runtime
values = guest.part("values")
# Not the generator of the user's code, whose numbers may be expected to repeat.
jitter = random.Random()
# Whether this code is part of a step.
inside = ContextVar("inside", default=False)
# Name -> how many steps without a key had it, and the task that called them.
calls = {}
# Name and key -> future, of steps that are being done.
running = {}


class Step:
    """Does a step of a workflow: await runtime.step(name, function, *args, **kwargs).

    Calls the function, awaits what it returns if that is possible, and journals the result, which has to be JSON, on the host.
    In a workflow that is resumed, a step that has finished is not done again: its journaled result is returned. Only
    `codebridge workflow run` has a journal; in other code this is a call with retries and a timeout.
    """

    def __init__(self, retries=0, timeout=None, key=None):
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ValueError("retries must be a whole number, not %r" % (retries,))
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < 1e9):
            raise ValueError("timeout must be a number of seconds above 0, not %r" % (timeout,))
        if key is not None and (isinstance(key, bool) or not isinstance(key, (str, int))):
            raise TypeError("key must be text or a whole number, not %s" % type(key).__name__)
        self.retries, self.timeout = retries, timeout
        self.key = None if key is None else checked("key", str(key))

    def options(self, *, retries=0, timeout=None, key=None):
        """Returns a step with options: runtime.step.options(retries=3)(name, function, *args).

        retries: how often it is tried again after an error, with growing pauses. timeout: seconds that an attempt may take.
        key: tells steps of one name apart, where their order may vary; the same name and key are the same step.
        """
        return Step(retries, timeout, key)

    def __repr__(self):
        return "<runtime.step>"

    def __call__(self, name, function, /, *args, **kwargs):
        if not isinstance(name, str):
            raise TypeError("a step needs a name first, not %s: runtime.step('fetch', function)" % type(name).__name__)
        name = checked("name", name)
        if inspect.iscoroutine(function):
            function.close()
        if not callable(function):
            raise TypeError(
                "step %s needs a function, then its arguments: runtime.step('fetch', function, 1), not function(1)" % shown(name)
            )
        # A step within a step is part of that one.
        is_journaled = guest.is_workflow and not inside.get()
        if not is_journaled:
            return self.attempts(name, function, args, kwargs)
        # Now, not when it is awaited: steps that run side by side are numbered in the order of their calls.
        number = 1 if self.key is not None else number_of(name)
        return self.journaled(name, number, function, args, kwargs)

    async def journaled(self, name, number, function, args, kwargs):
        step = {"name": name, "key": self.key, "number": number, "arguments": digest_of(args, kwargs)}
        identity = name, self.key
        while self.key is not None and identity in running:
            # The same step, called twice.
            await asyncio.shield(running[identity])
        done = asyncio.get_running_loop().create_future()
        if self.key is not None:
            running[identity] = done
        try:
            known = await ask("step_begin", step)
            if known["finished"]:
                return known["result"]

            async def failed(attempt, error):
                text = "%s: %s" % (type(error).__name__, error)
                await ask("step_fail", {"step": step, "attempt": attempt, "error": text[:300]})

            value = await self.attempts(name, function, args, kwargs, failed)
            try:
                result = as_json(name, value)
            except (TypeError, ValueError) as error:
                await failed(1, error)
                raise
            await ask("step_finish", {"step": step, "result": result})
            return result
        finally:
            if running.get(identity) is done:
                del running[identity]
            done.cancelled() or done.set_result(None)

    async def attempts(self, name, function, args, kwargs, failed=None):
        token = inside.set(True)
        try:
            delay = DELAY
            for attempt in range(1, self.retries + 2):
                try:
                    return await self.attempt(name, function, args, kwargs)
                except Exception as error:
                    if failed is not None:
                        await failed(attempt, error)
                    if attempt > self.retries or getattr(error, "kind", None) in FINAL:
                        raise
                await asyncio.sleep(delay * jitter.uniform(0.5, 1))
                delay = min(2 * delay, LONGEST_DELAY)
        finally:
            inside.reset(token)

    async def attempt(self, name, function, args, kwargs):
        async def call():
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        if self.timeout is None:
            return await call()
        now = asyncio.get_running_loop().time
        deadline = now() + self.timeout
        try:
            return await asyncio.wait_for(call(), self.timeout)
        except asyncio.TimeoutError:
            if now() < deadline:
                # An error of the function.
                raise
            raise asyncio.TimeoutError("step %s took longer than %s s" % (shown(name), self.timeout)) from None


step = Step()


async def ask(method, params):
    return await runtime._ask_async(method, params, values.parse)


def checked(what, text):
    """Returns a name or key that a journal takes."""
    text = text.encode("utf-8", "replace").decode()
    size = len(text.encode())
    if not 0 < size <= LONGEST_NAME:
        raise ValueError("the %s of a step has %d bytes, it can have 1 to %d" % (what, size, LONGEST_NAME))
    return text


def shown(name):
    return repr(name[:SHOWN])


def number_of(name):
    """Returns the number of a step without a key among those of its name. Their order must not depend on time."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    caller = threading.get_ident() if task is None else weakref.ref(task)
    number, before = calls.get(name, (0, caller))
    if before != caller:
        raise ValueError(
            "step %s is called by several tasks, whose order may vary: give each call a name of its own, such as "
            "f'NAME {item}', or a key: runtime.step.options(key=item)(name, function)" % shown(name)
        )
    calls[name] = number + 1, caller
    return number + 1


def digest_of(args, kwargs):
    """Returns what the arguments are compared by; None for those that are not JSON."""
    try:
        text = json.dumps([args, kwargs], sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def as_json(name, value):
    """Returns a result as a later run will read it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            "step %s ran, but its result of type %s is not JSON (%s), so it is not journaled: return text, numbers, True, "
            "False, None, or lists and dicts of these; keep other data with runtime.save_artifact and return its name"
            % (shown(name), type(value).__name__, error)
        ) from None
    data = text.encode("utf-8", "replace")
    if len(data) > LONGEST_RESULT:
        raise ValueError(
            "step %s ran, but its result has %d bytes as JSON, and a journal takes %d: return less; keep data with "
            "runtime.save_artifact and return its name" % (shown(name), len(data), LONGEST_RESULT)
        )
    return values.parse(data)
