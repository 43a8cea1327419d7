"""Reads a result document and names, with a JSON path, everything in it that is wrong."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
from packaging.version import InvalidVersion, Version

from benchcore.cell.document import checkpoint_suffix, spec_case

_MAX_PROBLEMS = 10
MOST_BYTES = 64 * 2**20
"""Largest size of a document; the largest measured ones have 0.2 MiB."""
_MAX_SHOWN = 80
_MAX_MESSAGE = 300
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_SUSPECT = re.compile(r"[\ud800-\udfff]|\\u(?:0000|[dD][89a-fA-F])")
"""NUL and surrogates in the text of a JSON document, also as escapes."""
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_NOT_PLAIN = (b"\\u", b"0" * 19, *(b'"%c:' % each for each in b" \t\r\n"))
"""Escapes, integers that may need more than 64 bits, and blanks between a key and its colon."""
_OTHER_SCHEMA = re.compile(r"\$\.schema: wanted schema \d+, got schema (\d+)")


def read_document(path: Path) -> dict[str, Any]:
    """The document at `<campaign>/<duel_run>.json`. Raises ValueError naming what is wrong."""
    document, unstorable = _read_json(path)
    problems = (
        unstorable
        or [*find_schema_problems(document, "result")]
        or [*_contradictions(document, path)]
    )
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        shown = [*problems[:_MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        raise ValueError("; ".join(shown))
    return document


def read_storable(path: Path) -> Any:
    """The JSON of a file. Raises OSError, or ValueError if it is none, is too large, or holds what
    no database stores."""
    document, unstorable = _read_json(path)
    if unstorable:
        raise ValueError(unstorable[0])
    return document


def _read_json(path: Path) -> tuple[Any, list[str]]:
    """The JSON of a file, and what in it no database stores."""
    _check_size(path)
    document, is_storable = _parse(path.read_bytes())
    return document, [] if is_storable else [*_unstorable(document, "$")]


def _check_size(path: Path) -> None:
    """Refuse a document that would fill the memory. Raises ValueError."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"wanted a document of at most {MOST_BYTES} bytes, got {size}")


def _parse(content: bytes) -> tuple[Any, bool]:
    """The document, and whether it is sure that `_unstorable` would find nothing: to visit every
    value again takes more time than to parse."""
    if (plain := _parse_plain(content)) is not None:
        return plain, True
    try:
        text = content.decode(json.detect_encoding(content), "surrogatepass")
        try:
            return _load(text, _parse_int, _parse_float), _is_plain(text)
        except OverflowError:
            return _load(text, int, float), False
    except (ValueError, RecursionError) as error:
        raise ValueError(f"$: wanted a JSON document, got {_show(content)}: {error}") from error


def _parse_plain(content: bytes) -> Any | None:
    """The document, read in a fifth of the time; None = it may hold what `_unstorable` refuses, or
    a key twice, or it is no JSON."""
    digits = content.translate(_DIGITS)
    if not content.isascii() or any(each in digits for each in _NOT_PLAIN):
        return None
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    try:
        again = orjson.dumps(document)
    except orjson.JSONEncodeError as error:  # past 254 levels, which no column can store
        raise ValueError(f"$: wanted a document with fewer levels, but {error}") from error
    # Of a key that is there twice, one is lost.
    is_whole = content.count(b'":') == again.count(b'":')
    return document if is_whole else None


def _load(text: str, parse_int: Callable[[str], int], parse_float: Callable[[str], float]) -> Any:
    return json.loads(
        text,
        object_pairs_hook=_unique_keys,
        parse_constant=_refuse_constant,
        parse_int=parse_int,
        parse_float=parse_float,
    )


def _parse_int(text: str) -> int:
    """Raises OverflowError where `_unstorable` refuses the number."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _parse_float(text: str) -> float:
    """Raises OverflowError where `_unstorable` refuses the number."""
    number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number


def _is_plain(text: str) -> bool:
    """Whether no string can hold what `_unstorable` refuses."""
    return not ("\\u" in text or not text.isascii()) or not _SUSPECT.search(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"wanted each key once, got {twice} more than once")
    return found


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"wanted a finite number or null, got {constant}")


@cache
def _load_schema(name: str) -> Any:
    schema = resources.files("benchcore") / "schemas" / f"{name}-1.schema.json"
    return json.loads(schema.read_text(encoding="utf-8"))


@cache
def _validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_load_schema(name))


def find_schema_problems(document: Any, name: str) -> Iterator[str]:
    """What the schema `result` or `proof` refuses in a document, each with its JSON path."""
    if other := describe_other_schema(document, name):
        yield other  # what else differs is right there
        return
    errors = _validator(name).iter_errors(document)
    for error in sorted(errors, key=lambda each: _json_path(each.instance_path)):
        value = _load_schema(name)
        for key in error.schema_path:
            value = value[key]
        wanted = f"{error.schema_path[-1]} {_show(value)}"
        message = error.message[:_MAX_MESSAGE].replace('"', "'")
        path = _json_path(error.instance_path)
        yield f"{path}: wanted {wanted}, got {_show(error.instance)} ({message})"


def describe_other_schema(document: Any, name: str) -> str | None:
    """A message if another version of Dead Heat wrote a document, with what to do; None if it did
    not."""
    found = document.get("schema") if isinstance(document, dict) else None
    wanted = _find_number(name)
    if type(found) is not int or not 0 < found != wanted:
        return None
    why = (
        "a newer Dead Heat wrote; update Dead Heat, then run `deadheat ingest` again"
        if found > wanted
        else "an older Dead Heat wrote; ingest it with that version"
    )
    return f"$.schema: wanted schema {wanted}, got schema {found}, which {why}"


def was_of_this_schema(reason: str) -> bool:
    """Whether a document was refused, for this reason, by a version that knew another schema than
    the document's, which is this version's."""
    found = _OTHER_SCHEMA.search(reason)
    return found is not None and int(found[1]) == _find_number("result")


def _find_number(name: str) -> int:
    """The version of a schema."""
    return _load_schema(name)["properties"]["schema"]["const"]


def _json_path(keys: Iterable[str | int]) -> str:
    steps = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"${''.join(steps)}"


def _unstorable(value: Any, path: str) -> Iterator[str]:
    """What JSON can hold and a database can't store."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _unstorable_text(key, f"{path} (a key)")
            yield from _unstorable(each, f"{path}.{key}")
    elif isinstance(value, list):
        for position, each in enumerate(value):
            yield from _unstorable(each, f"{path}[{position}]")
    elif isinstance(value, str):
        yield from _unstorable_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: wanted a finite number or null, got {value!r}"
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield f"{path}: wanted an integer of 64 bits, got {_show(value)}"


def _unstorable_text(value: str, path: str) -> Iterator[str]:
    if _UNSTORABLE.search(value):
        yield f"{path}: wanted text without NUL and lone surrogates, got {_show(value)}"


def _contradictions(document: Mapping[str, Any], path: Path) -> Iterator[str]:
    """What a schema can't express: names that must be unique, known, or equal."""
    for key, wanted in (("duel_run", path.stem), ("campaign", path.parent.name)):
        if document[key] != wanted:
            yield f"$.{key}: wanted {wanted!r}, after the file's path, got {document[key]!r}"
    yield from _wrong_times(document["allocation"])
    yield from _wrong_case(document["duel"])
    contenders = document["contenders"]
    names = [each["name"] for each in contenders]
    yield from _twice(names, "$.contenders[*].name")
    for position, contender in enumerate(contenders):
        yield from _wrong_contender(contender, f"$.contenders[{position}]")
    for position, row in enumerate(document["equivalence"]):
        for key in ("a", "b"):
            if row[key] not in names:
                where = f"$.equivalence[{position}].{key}"
                yield f"{where}: wanted a contender's name, one of {names}, got {row[key]!r}"
    rows = [(each["a"], each["b"], each["quantity"]) for each in document["equivalence"]]
    yield from _twice(rows, "$.equivalence[*]")


def _wrong_case(duel: Mapping[str, Any]) -> Iterator[str]:
    """A case's name identifies its series, so it must name the checkpoint."""
    checkpoint = duel.get("checkpoint")
    end = checkpoint_suffix(checkpoint) if checkpoint else ""
    if duel["case"] != spec_case(duel["case"]) + end:
        wanted = f"a name that ends with {end!r}" if end else "no checkpoint's name"
        yield f"$.duel.case: wanted {wanted}, as in $.duel.checkpoint, got {duel['case']!r}"


def _wrong_contender(contender: Mapping[str, Any], where: str) -> Iterator[str]:
    if contender["framework"] != "stdlib" and not _is_version(contender["version"]):
        yield (
            f"{where}.version: wanted a version that can be ordered, such as '2.9.1' (PEP 440), "
            f"got {contender['version']!r}"
        )
    yield from _twice([each["index"] for each in contender["starts"]], f"{where}.starts[*].index")
    for position, start in enumerate(contender["starts"]):
        here = f"{where}.starts[{position}]"
        rounds = [each["round"] for each in start["blocks"]]
        yield from _twice(rounds, f"{here}.blocks[*].round")
        if not _is_time(start["started_at"]):
            yield f"{here}.started_at: wanted a time that exists, got {start['started_at']!r}"


def _wrong_times(allocation: Mapping[str, Any]) -> Iterator[str]:
    wrong = [key for key in ("started_at", "ended_at") if not _is_time(allocation[key])]
    for key in wrong:
        yield f"$.allocation.{key}: wanted a time that exists, got {allocation[key]!r}"
    if not wrong:
        started_at, ended_at = (
            datetime.fromisoformat(allocation[key]) for key in ("started_at", "ended_at")
        )
        if ended_at < started_at:
            yield (
                f"$.allocation.ended_at: wanted a time not before {allocation['started_at']!r}, "
                f"got {allocation['ended_at']!r}"
            )


def _twice(values: Iterable[object], where: str) -> Iterator[str]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        yield f"{where}: wanted each once, got {_show(twice)} more than once"


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _show(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
