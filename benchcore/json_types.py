"""Dataclasses as the types of JSON documents: read one, write one, generate its JSON schema."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
import textwrap
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Any = _Absent.ABSENT
"""The default of a field that a document may lack, and that is never null."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldRule:
    """What a value must fulfil besides its type, as JSON schema keywords."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    keys: tuple[str, ...] | None = None
    """The keys of an object that has exactly these."""


Count = Annotated[int, FieldRule(minimum=0)]
Positive = Annotated[int, FieldRule(minimum=1)]
Amount = Annotated[float, FieldRule(minimum=0)]
Text = Annotated[str, FieldRule(min_length=1)]
Name = Annotated[str, FieldRule(pattern="^[a-z0-9][a-z0-9_.+-]{0,99}$")]
Hash = Annotated[str, FieldRule(pattern="^[0-9a-f]{16}$")]
_SHA256_PATTERN = "^[0-9a-f]{64}$"
Sha256 = Annotated[str, FieldRule(pattern=_SHA256_PATTERN)]
Time = Annotated[str, FieldRule(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$")]

_T = TypeVar("_T")


def is_sha256(value: object) -> bool:
    """Whether it is a SHA-256, as documents write it: 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch(_SHA256_PATTERN, value) is not None


def from_json(kind: type[_T], value: Any) -> _T:
    """A dataclass from its plain JSON, with the dataclasses, tuples and paths in it.

    A field with a default may be absent, as in what an older version wrote. Raises ValueError if
    another one is, for an unknown field, and for a number, text or list that is something else.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"wanted the JSON object of {kind.__name__}, got {value!r:.100}")
    types, required = _list_fields(kind)
    missing, unknown = sorted(required - value.keys()), sorted(value.keys() - types.keys())
    if missing or unknown:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        has = [f"has unknown {', '.join(unknown)}"] if unknown else []
        raise ValueError(
            f"wanted a complete {kind.__name__}, got one that {' and '.join(lacks + has)}; "
            "write it again with this version of deadheat"
        )
    return kind(**{key: _read_field(key, types[key], each) for key, each in value.items()})


def _read_field(name: str, kind: Any, value: Any) -> Any:
    try:
        return _convert(kind, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


@cache
def _list_fields(kind: type) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The types of its fields, and the names of those without a default."""
    fields = dataclasses.fields(cast(Any, kind))
    return get_type_hints(kind), frozenset(each.name for each in fields if _is_required(each))


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def _convert(kind: Any, value: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return value if value is None else _convert(arguments[0], value)
    if dataclasses.is_dataclass(kind):
        return from_json(cast(type, kind), value)
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(arguments[0], each) for each in value)
    if get_origin(kind) is dict and isinstance(value, Mapping):
        return {key: _convert(arguments[1], each) for key, each in value.items()}
    if not _fits(str if kind is Path else kind, value):
        raise ValueError(f"wanted {_name(kind)}, got {value!r:.100}")
    return Path(value) if kind is Path else value


def _fits(kind: Any, value: Any) -> bool:
    """Whether a scalar has this type, and a number is one that JSON can hold."""
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return get_origin(kind) is not tuple and (kind not in _SCALARS or type(value) is kind)


def _name(kind: Any) -> str:
    return "a list" if get_origin(kind) is tuple else kind.__name__


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass as a JSON object, without the fields that are `ABSENT`."""
    return dataclasses.asdict(
        value, dict_factory=lambda items: {key: each for key, each in items if each is not ABSENT}
    )


def make_schema(kind: type, *, schema_id: str, title: str) -> dict[str, Any]:
    """The JSON schema of a dataclass. A field is required unless it has a default."""
    definitions: dict[str, Any] = {}
    root = _describe_class(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_id,
        "title": title,
        "type": "object",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _describe_class(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    notes = _read_docstrings(kind)
    fields = dataclasses.fields(kind)
    return {
        "description": " ".join(inspect.cleandoc(kind.__doc__).split()),
        "additionalProperties": False,
        "required": [each.name for each in fields if _is_required(each)],
        "properties": {
            each.name: {
                **_describe(hints[each.name], definitions),
                **({"description": notes[each.name]} if each.name in notes else {}),
            }
            for each in fields
        },
    }


def _read_docstrings(kind: type) -> dict[str, str]:
    """The text below each field, by its name."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(note.value.value.split())
        for field, note in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


_SCALARS: dict[Any, dict[str, Any]] = {
    int: {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},  # a database's BIGINT
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
}


def _describe(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), list(get_args(kind))
    if kind is Any:
        return {}
    if origin is Annotated:
        return _apply(arguments[1], _describe(arguments[0], definitions))
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        return _allow_null(_describe(inner, definitions))
    if origin is Literal:
        return {"enum": arguments} if len(arguments) > 1 else {"const": arguments[0]}
    if origin in (list, tuple):
        return {"type": "array", "items": _describe(arguments[0], definitions)}
    if origin is dict:
        values = _describe(arguments[1], definitions)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if dataclasses.is_dataclass(kind):
        name = cast(type, kind).__name__
        if name not in definitions:
            definitions[name] = {}  # before its own fields, which may be of the same class
            definitions[name] = _describe_class(kind, definitions)
        return {"$ref": f"#/$defs/{name}", "type": "object"}
    return dict(_SCALARS[kind])


def _allow_null(described: dict[str, Any]) -> dict[str, Any]:
    if "enum" in described:
        return {**described, "enum": [*described["enum"], None]}
    return {**described, "type": [described["type"], "null"]}


def _apply(rule: FieldRule, described: dict[str, Any]) -> dict[str, Any]:
    given = {key: each for key, each in vars(rule).items() if each is not None}
    keys = given.pop("keys", None)
    if keys is not None:
        values = described.pop("additionalProperties")
        described |= {
            "additionalProperties": False,
            "required": list(keys),
            "properties": dict.fromkeys(keys, values),
        }
    return {**described, **{_camel(key): each for key, each in given.items()}}


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(each.title() for each in others)
