"""The arguments of a tool with the defaults of its JSON schema: a model that leaves one out, and a model that writes it, mean the
same call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._native import derived_key

# Deeper objects are compared as they are. The limit ends schemas that contain themselves in their defaults.
_MAX_DEPTH = 32

# References that lead to references.
_MAX_REFERENCES = 8

# The rest of the way to a field, or the whole value.
Path = tuple[str, ...]


def with_defaults(arguments: Mapping[str, Any], schema: Any, fields: Iterable[str] | None = None) -> dict[str, Any]:
    """A copy of the arguments with the defaults that lie in these fields, or in all. In objects too, if they are given."""
    wanted = [()] if fields is None else [_path(field) for field in fields]
    filled = _filled(dict(arguments), schema, schema, wanted, 0)
    return dict(filled)


def defaults_of(function: Callable[..., Any] | None) -> dict[str, Any]:
    """The defaults of a function that can be part of a key."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}
    given = {one.name: one.default for one in parameters if one.default is not one.empty}
    return {name: default for name, default in given.items() if _can_be_in_key(default)}


def _can_be_in_key(value: Any) -> bool:
    try:
        derived_key("", "default", {"value": value})
    except (TypeError, ValueError):
        return False
    return True


def _path(field: str) -> Path:
    if not field.startswith("/"):
        return (field,) if field else ()
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in field[1:].split("/"))


def _filled(value: Any, schema: Any, root: Any, wanted: list[Path], depth: int) -> Any:
    found = _resolved(schema, root)
    if depth > _MAX_DEPTH or not wanted or found is None:
        return value
    if isinstance(value, list):
        inner = _inside(wanted, None)
        return [_filled(one, found.get("items"), root, inner, depth + 1) for one in value]
    properties = found.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    filled = dict(value)
    for name, described in properties.items():
        inner = _inside(wanted, name)
        if not inner or not isinstance(described, dict):
            continue
        if name not in filled:
            # A default may stand beside a reference, or behind it.
            holders = (described, _resolved(described, root) or {})
            defaults = [holder["default"] for holder in holders if "default" in holder]
            filled.update({name: default for default in defaults[:1]})
        if name in filled:
            filled[name] = _filled(filled[name], described, root, inner, depth + 1)
    return filled


def _inside(wanted: list[Path], name: str | None) -> list[Path]:
    """The ways that go on in a member, or in any item of a list."""
    return [path[1:] for path in wanted if not path or name is None or path[0] == name]


def _resolved(schema: Any, root: Any) -> dict[str, Any] | None:
    """The schema that describes an object, behind references and behind `null` as an alternative."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict):
            return None
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
        choices = [one for one in choices if isinstance(one, dict) and one.get("type") != "null"]
        if isinstance(schema.get("$ref"), str):
            schema = _at(root, schema["$ref"])
        elif len(choices) == 1 and "properties" not in schema:
            schema = choices[0]
        else:
            return schema
    return None


def _at(root: Any, reference: str) -> Any:
    if not reference.startswith("#"):
        return None
    for part in _path(reference[1:]):
        root = root.get(part) if isinstance(root, dict) else None
    return root
