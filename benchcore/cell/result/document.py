"""The whole result document, and the JSON schema that is generated from its types.

`python -m benchcore.cell.result.document FOLDER` writes the schemas there.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from benchcore.cell.result.contender import Contender
from benchcore.cell.result.duel import Allocation, Duel, Harness
from benchcore.cell.result.proof import ProofDocument
from benchcore.json_types import Amount, Count, FieldRule, Hash, Name, Positive, Text, make_schema

_WIDTH = 120


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The difference of two contenders' evidence in one quantity."""

    a: Name
    b: Name
    quantity: Text
    max_relative: float | None
    l2_relative: float | None
    tolerance: Amount
    agrees: bool


@dataclass(frozen=True, kw_only=True)
class ProbeRow:
    """One matrix product and one copy on the host, after a round."""

    start: Count
    round: Count
    gemm_ns: Positive | None
    """Null without numpy."""
    copy_ns: Positive


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Measurements of the machine after each round, without a framework."""

    rows: list[ProbeRow]
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class ResultDocument:
    """One duel run. The conductor writes it atomically to the spool, and ingest validates it. A
    counter that a device lacks is null, never 0."""

    schema: Literal[1]
    method: Positive
    duel_run: Hash
    campaign: Name
    duel: Duel
    harness: Harness
    allocation: Allocation
    contenders: Annotated[list[Contender], FieldRule(min_items=1)]
    equivalence: list[Evidence]
    probe: Probe | None = None
    """Null or absent if the order did not request it."""


def make_schemas() -> dict[str, str]:
    """The text of every JSON schema in `benchcore/schemas`, by file name."""
    schemas = {
        "result-1.schema.json": make_schema(
            ResultDocument,
            schema_id="deadheat/result-1",
            title="Dead Heat result document, schema 1",
        ),
        "proof-1.schema.json": make_schema(
            ProofDocument, schema_id="deadheat/proof-1", title="Dead Heat proof document, schema 1"
        ),
    }
    return {name: f"{_format(schema)}\n" for name, schema in schemas.items()}


def _format(value: Any, margin: int = 0) -> str:
    """JSON in which every value that fits is on one line."""
    line = json.dumps(value)
    if margin + len(line) <= _WIDTH or not isinstance(value, dict):
        return line
    space = " " * (margin + 1)
    inside = (
        f"{space}{json.dumps(key)}: {_format(each, margin + 1)}" for key, each in value.items()
    )
    return "{\n" + ",\n".join(inside) + f"\n{space[1:]}}}"


if __name__ == "__main__":
    for name, text in make_schemas().items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
