"""What an object holds besides its fields or its value."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Any

# Set on objects by attrs and SQLAlchemy for themselves.
_BOOKKEEPING = frozenset({"_attrs_cached_hash", "_sa_instance_state"})


def attributes_besides(value: Any, names: Collection[str], kinds: tuple[type, ...] | None = None) -> list[str]:
    """The attributes of an object, in slots too, that are not among these names. What is computed once from the others is left
    out: it can be computed again. `kinds` are the classes whose slots are looked at, if not all."""
    known = {*names, *_BOOKKEEPING}
    found = (*getattr(value, "__dict__", ()), *_filled_slots(value, type(value).__mro__ if kinds is None else kinds))
    return [name for name in found if name not in known and not _is_special(name) and not _is_computed(value, name)]


def _is_special(name: str) -> bool:
    """Whether Python itself uses the name, such as `__weakref__` and `__orig_class__`."""
    return name.startswith("__") and name.endswith("__")


def _is_computed(value: Any, name: str) -> bool:
    if isinstance(getattr(type(value), name, None), functools.cached_property):
        return True
    # In its classes with slots, attrs makes a slot of a cached property, and computes it in `__getattr__`.
    getters = (kind.__dict__.get("__getattr__") for kind in type(value).__mro__ if "__attrs_attrs__" in kind.__dict__)
    defaults = (default for getter in getters for default in getattr(getter, "__defaults__", None) or ())
    return any(isinstance(default, dict) and name in default for default in defaults)


def _filled_slots(value: Any, kinds: tuple[type, ...]) -> Iterator[str]:
    for kind in kinds:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            is_private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if is_private else slot
            # By the descriptor, because reading the attribute may compute it.
            try:
                kind.__dict__[name].__get__(value, kind)
            except (AttributeError, KeyError):
                continue
            yield name
