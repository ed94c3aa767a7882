"""Keeps pydantic models as their own JSON, if they come back from it as they were."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from ._same import NotKeepable, is_same

# The members under which a model is kept that does not come back from its JSON alone with the fields that were set.
_MODEL, _FIELDS_SET = "onceward:model", "onceward:fields_set"


def write(value: Any, kind: Any) -> Any:
    """The model as JSON."""
    for kept in _forms(value, kind):
        # What the validators of the model refuse.
        with contextlib.suppress(ValueError):
            if is_same(value, read(kept, kind)):
                return kept
    raise NotKeepable(kind.__qualname__)


def _forms(value: Any, kind: Any) -> Iterator[Any]:
    whole = _dumped(value, kind)
    yield whole
    yield _dumped(value, kind, exclude_unset=True)
    # Defaults that are made anew each time, such as a time, have to be kept too.
    yield {_MODEL: whole, _FIELDS_SET: sorted(getattr(value, "__pydantic_fields_set__", ()))}


def _dumped(value: Any, kind: Any, exclude_unset: bool = False) -> Any:
    options = {"by_alias": True, "round_trip": True, "warnings": False, "exclude_unset": exclude_unset}
    return json.loads(kind.__pydantic_serializer__.to_json(value, **options))


def read(kept: Any, kind: Any) -> Any:
    """The model that was kept."""
    fields_set = None
    if isinstance(kept, dict) and kept.keys() == {_MODEL, _FIELDS_SET}:
        kept, fields_set = kept[_MODEL], kept[_FIELDS_SET]
    made = kind.__pydantic_validator__.validate_json(json.dumps(kept))
    if fields_set is not None:
        object.__setattr__(made, "__pydantic_fields_set__", set(fields_set))
    return made
