"""A process of a scenario: prepares its bench, calls the tool as planned, and sends back how each call ended.

`main` is the program of a fresh interpreter, which reads its work from stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from .._context import session
from . import _bench, _effects, _tracing
from ._bench import Bench, ProcessPlan
from ._errors import InvalidCheck


@dataclass
class Tool:
    """The tool under test, with the arguments that mean one intent."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    effects: list[_effects.Effect] = field(default_factory=list)

    @property
    def name(self) -> str:
        named = getattr(self.function, "func", self.function)
        return str(getattr(named, "__name__", type(named).__name__))

    def call(self) -> Any:
        return self.function(*self.args, **self.kwargs)


def serve(tool: Callable[[], Tool], plan: ProcessPlan, results: int) -> None:
    """Does the work of this process and ends it. `results` is the descriptor to which each result is sent."""
    status = 0
    try:
        bench = Bench(plan)
        _bench.install(bench)
        stores = _tracing.move_ledgers(bench)
        this = tool()
        for effect in this.effects:
            _effects.replace(effect, bench)
        with session(plan.session) if plan.session else contextlib.nullcontext():
            _Caller(this, bench, stores, results).run()
        _native.shut_down()
    except BaseException as error:
        status = 1
        text = str(error) if isinstance(error, InvalidCheck) else traceback.format_exc()
        _send(results, broken=text)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


class _Caller:
    """Calls the tool as planned."""

    def __init__(self, tool: Tool, bench: Bench, stores: _tracing.Stores, results: int) -> None:
        self._tool, self._bench, self._stores, self._results = tool, bench, stores, results
        # One loop for all calls: clients of the tool may belong to it.
        self._loop = asyncio.new_event_loop()
        bench.loop = self._loop

    def run(self) -> None:
        plan = self._bench.plan
        if plan.is_repeat:
            self._settle()
        self._stores.is_calling = True
        numbers = range(plan.first, plan.first + plan.calls)
        if plan.at_once:
            self._at_once(list(numbers))
        else:
            for number in numbers:
                if number == plan.first + 1:
                    time.sleep(plan.pause)
                    if plan.fault or plan.stop:
                        self._settle()
                self._call(number)

    def _settle(self) -> None:
        """Waits for the claims of disturbed calls, while what is left of these goes on."""
        self._loop.run_until_complete(self._loop.run_in_executor(None, self._stores.settle))

    def _call(self, number: int) -> None:
        """One call, in a context of its own, as each request has."""
        contextvars.copy_context().run(self._call_here, number)

    def _call_here(self, number: int) -> None:
        self._bench.begin(number)
        is_async = False
        try:
            result = self._tool.call()
            if inspect.isawaitable(result):
                is_async = True
                self._loop.run_until_complete(self._awaited(result, number))
        except InvalidCheck:
            raise
        except BaseException as error:
            self._ended(number, is_async, error)
        else:
            self._ended(number, is_async, None)

    async def _awaited(self, result: Any, number: int) -> None:
        task = asyncio.ensure_future(result)
        if number == self._bench.plan.first:
            self._bench.task = task
        await task

    def _at_once(self, numbers: list[int]) -> None:
        if self._bench.plan.is_async:
            self._loop.run_until_complete(self._tasks_at_once(numbers))
            return
        ready = threading.Barrier(len(numbers))

        def call(number: int) -> None:
            self._bench.begin(number)
            ready.wait()
            try:
                self._tool.call()
            except BaseException as error:
                self._ended(number, False, error)
            else:
                self._ended(number, False, None)

        contexts = [contextvars.copy_context() for _ in numbers]
        threads = [
            threading.Thread(target=context.run, args=(call, number))
            for context, number in zip(contexts, numbers, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _tasks_at_once(self, numbers: list[int]) -> None:
        async def call(number: int) -> None:
            self._bench.begin(number)
            try:
                await self._tool.call()
            except BaseException as error:
                self._ended(number, True, error)
            else:
                self._ended(number, True, None)

        await asyncio.gather(*(call(number) for number in numbers))

    def _ended(self, number: int, is_async: bool, error: BaseException | None) -> None:
        lines = str(error).splitlines() or [""]
        text = None if error is None else f"{type(error).__name__}: {lines[0]}"
        _send(self._results, call=number, error=text, is_async=is_async)


def _send(results: int, **message: Any) -> None:
    os.write(results, (json.dumps(message) + "\n").encode())


# A fresh interpreter.


def packed(tool: Tool, plan: ProcessPlan, results: int) -> bytes:
    """The work of a fresh interpreter."""
    module = getattr(tool.function, "__module__", None)
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    try:
        work = pickle.dumps(tool)
    except Exception as error:
        raise InvalidCheck(
            f"{tool.name}, its arguments or its effects cannot be sent to a fresh interpreter: {error}. Define them at "
            'module level, where it can import them, or use forked processes: once(...).settings(processes="fork")'
        ) from error
    return pickle.dumps((list(sys.path), module, file, plan, results, work))


def _load(module: str | None, file: str | None) -> None:
    """Imports the module of the tool by its name, or else from its file, as pytest may have done."""
    if module is None or module in sys.modules:
        return
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        if file is None:
            raise
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        spec.loader.exec_module(loaded)


def main() -> None:
    """Runs in a fresh interpreter."""
    path, module, file, plan, results, work = pickle.loads(sys.stdin.buffer.read())
    sys.path[:] = path

    def tool() -> Tool:
        _load(module, file)
        unpacked = pickle.loads(work)
        assert isinstance(unpacked, Tool)
        return unpacked

    serve(tool, plan, results)
