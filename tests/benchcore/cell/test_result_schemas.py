"""The JSON schemas in git are those of the types, and take every document that we keep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from benchcore.cell.result.document import make_schemas
from benchcore.json_types import ABSENT, Count, FieldRule, from_json, make_schema, to_json
from benchcore.store.incoming.documents import find_schema_problems

ROOT = Path(__file__).parents[3]
SCHEMAS = resources.files("benchcore") / "schemas"
REFRESH = "python -m benchcore.cell.result.document benchcore/schemas"
KEPT = sorted((ROOT / "results").glob("*/spool/*/*.json"))
PROOFS = sorted((ROOT / "results").glob("*/proofs/*.json"))


@pytest.mark.parametrize("name", make_schemas())
def test_the_schema_in_git_is_generated_from_the_types(name: str) -> None:
    stored = (SCHEMAS / name).read_text(encoding="utf-8")
    assert stored == make_schemas()[name], f"refresh it: {REFRESH}"


def test_no_other_schema_is_stored() -> None:
    assert {each.name for each in SCHEMAS.iterdir()} == set(make_schemas())


@pytest.mark.parametrize("path", [*KEPT, *PROOFS], ids=lambda path: path.stem)
def test_every_document_of_the_results_is_valid(path: Path) -> None:
    schema = "result" if path in KEPT else "proof"
    assert list(find_schema_problems(json.loads(path.read_text()), schema)) == []


def test_stored_results_contain_documents() -> None:
    assert KEPT
    assert PROOFS


@dataclass(frozen=True, kw_only=True)
class Inner:
    """What is inside."""

    flag: Literal["a", "b"] | None


@dataclass(frozen=True, kw_only=True)
class Outer:
    """What is
    outside."""

    count: Count | None
    """How many."""
    inner: Inner | None = None
    late: Annotated[str, FieldRule(min_length=1)] = ABSENT
    rows: Annotated[list[Inner], FieldRule(max_items=2)]
    stages: Annotated[dict[str, float | None], FieldRule(keys=("x", "y"))]
    others: dict[str, Any]


def test_a_schema_states_the_types_and_their_rules() -> None:
    schema = make_schema(Outer, schema_id="outer", title="Outer")
    assert schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "outer",
        "title": "Outer",
        "type": "object",
        "description": "What is outside.",
        "additionalProperties": False,
        "required": ["count", "rows", "stages", "others"],
        "properties": {
            "count": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": 2**63 - 1,
                "description": "How many.",
            },
            "inner": {"$ref": "#/$defs/Inner", "type": ["object", "null"]},
            "late": {"type": "string", "minLength": 1},
            "rows": {
                "type": "array",
                "items": {"$ref": "#/$defs/Inner", "type": "object"},
                "maxItems": 2,
            },
            "stages": {
                "type": "object",
                "additionalProperties": False,
                "required": ["x", "y"],
                "properties": {
                    "x": {"type": ["number", "null"]},
                    "y": {"type": ["number", "null"]},
                },
            },
            "others": {"type": "object"},
        },
        "$defs": {
            "Inner": {
                "description": "What is inside.",
                "additionalProperties": False,
                "required": ["flag"],
                "properties": {"flag": {"enum": ["a", "b", None]}},
            }
        },
    }


def test_a_dataclass_survives_json_and_an_absent_field_stays_absent() -> None:
    inner = Inner(flag="a")
    written = to_json(Outer(count=1, inner=inner, rows=[inner], stages={}, others={"k": 1}))
    assert "late" not in written
    read = from_json(Outer, {**written, "late": "x"})
    assert read.inner == inner
    assert read.others == {"k": 1}
    with pytest.raises(ValueError, match=r"complete Inner, .* lacks flag and has unknown novel;"):
        from_json(Outer, {**written, "late": "x", "inner": {"novel": 1}})
    with pytest.raises(ValueError, match="wanted the JSON object of Outer, got 5"):
        from_json(Outer, 5)
