"""Which arguments a function takes, and which of them a call gives, by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ._errors import InvalidCall


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def window_fields(settings: Mapping[str, Any]) -> list[str]:
    """The fields that the window of time reads: a recipe does so besides its key."""
    of = (settings.get("window") or {}).get("of", "now")
    return [] if of == "now" else [of]


def check_names(operation: str, fields: Iterable[str], arguments: inspect.Signature | Collection[str]) -> None:
    """Refuses fields that lead to no argument: a misspelt one would be the same in every call."""
    if isinstance(arguments, inspect.Signature):
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in arguments.parameters.values()):
            return
        arguments = arguments.parameters
    for root in map(argument_of, fields):
        if root not in arguments:
            near = difflib.get_close_matches(root, list(arguments), 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise InvalidCall(f"{operation} has no argument `{root}`{hint}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The arguments with which a function is called. Those of a wrapper count where it names its own; one that takes any
    arguments is taken to pass them on."""
    try:
        own = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError) as error:
        # A wrapper in C, such as `functools.lru_cache`, passes its arguments on.
        if hasattr(function, "__wrapped__"):
            return inspect.signature(function)
        raise InvalidCall(f"{name_of(function)} does not say which arguments it takes: guard a function around it") from error
    passes_on = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    kinds = {parameter.kind for parameter in own.parameters.values()}
    return inspect.signature(function) if kinds and kinds <= passes_on else own


def binder(signature: inspect.Signature, wanted: set[str]) -> Callable[..., dict[str, Any]]:
    """A function with the same parameters that returns the wanted arguments by name. Python itself then binds them, as fast as
    it calls any function."""
    parameters, defaults, words, seen_star = list(signature.parameters.values()), {}, [], False
    # No parameter begins like the names that are used here.
    own = "_"
    while any(parameter.name.startswith(own) for parameter in parameters):
        own += "_"
    for index, parameter in enumerate(parameters):
        text = f"{own}{index}"
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            text, seen_star = f"*{text}", True
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            text = parameter.name
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not seen_star:
                words.append("*")
                seen_star = True
        if parameter.default is not inspect.Parameter.empty:
            defaults[f"{own}d{index}"] = parameter.default
            text = f"{text}={own}d{index}"
        words.append(text)
        is_last_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY and (
            index + 1 == len(parameters) or parameters[index + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
        )
        if is_last_positional:
            words.append("/")
    members: list[str] = []
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            # First, because a parameter that is only positional may have the name of one of them.
            some = f"**{{{own}n: {own}v for {own}n, {own}v in {own}{index}.items() if {own}n in {own}wanted}}"
            members.insert(0, some)
        if parameter.name in wanted:
            is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            members.append(f"{parameter.name!r}: {parameter.name if is_named else f'{own}{index}'}")
    namespace: dict[str, Any] = {**defaults, f"{own}wanted": wanted}
    exec(f"def bind({', '.join(words)}):\n    return {{{', '.join(members)}}}", namespace)
    bind: Callable[..., dict[str, Any]] = namespace["bind"]
    return bind


def argument_of(field: str) -> str:
    """The argument that a name or a JSON pointer leads to."""
    if not field.startswith("/"):
        return field
    return field[1:].split("/")[0].replace("~1", "/").replace("~0", "~")
