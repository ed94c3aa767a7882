"""Results that act later: refuses work that has not ended, or not even begun, when the function returns."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dis
import inspect
import itertools
import types
from collections.abc import Awaitable, Callable
from typing import Any

from . import _failures

# What acts only while it is iterated or entered, or in another thread or process.
_LAZY = (
    types.GeneratorType,
    types.AsyncGeneratorType,
    map,
    filter,
    # Those of `itertools` that call a function.
    itertools.accumulate,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.groupby,
    itertools.starmap,
    itertools.takewhile,
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
    concurrent.futures.Future,
)

# With this instruction an async generator is made, from Python 3.11 on. One that has begun is at a later instruction.
_MADE = dis.opmap.get("RETURN_GENERATOR")


class _StillRunning(TypeError, _failures.Unknown):
    """The function returned work that goes on after its end."""


class _NotBegun(TypeError, _failures.NotSent):
    """The function returned its own body, of which nothing has run: it is under a decorator that is not async."""


def refuse_lazy(operation: str, result: Any, function: Callable[..., Any] | None) -> None:
    """Raises if the result acts later. The error says whether the function has begun."""
    if isinstance(result, Awaitable):
        text = f"{operation} returned an awaitable: make the function async and await it, so that its end can be recorded"
        if not inspect.iscoroutine(result) or not _is_created(result):
            raise _StillRunning(text)
        result.close()
        raise (_NotBegun if _is_body_of(function, result.cr_code) else TypeError)(text)
    if isinstance(result, _LAZY):
        kind = type(result).__name__
        instead = "what its result() returns" if isinstance(result, concurrent.futures.Future) else "a list"
        text = f"{operation} returned a {kind}, whose effects happen later: return {instead}, so that its end can be recorded"
        code = getattr(result, "gi_code", None) or getattr(result, "ag_code", None)
        has_begun = code is None or not _is_created(result) or not _is_body_of(function, code)
        raise (_StillRunning if has_begun else _NotBegun)(text)


def _is_body_of(function: Callable[..., Any] | None, code: types.CodeType) -> bool:
    """Whether this is the body of a function that is wrapped."""
    inner = inspect.unwrap(function) if function is not None and hasattr(function, "__wrapped__") else None
    return getattr(inner, "__code__", None) is code


def _is_created(lazy: Any) -> bool:
    """Whether no instruction of a coroutine or generator has run. A decorator may have taken the first step: then it may have
    acted."""
    if inspect.iscoroutine(lazy):
        return inspect.getcoroutinestate(lazy) == inspect.CORO_CREATED
    if inspect.isgenerator(lazy):
        return inspect.getgeneratorstate(lazy) == inspect.GEN_CREATED
    return inspect.isasyncgen(lazy) and _is_created_async(lazy)


def _is_created_async(generator: Any) -> bool:
    # `inspect.getasyncgenstate` is not in every supported version.
    frame = generator.ag_frame
    if frame is None or generator.ag_running:
        return False
    if (is_suspended := getattr(generator, "ag_suspended", None)) is not None:
        return not is_suspended
    is_made: bool = frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] == _MADE
    return is_made
