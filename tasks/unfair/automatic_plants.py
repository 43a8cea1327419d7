"""The automatic plants: which of the wrappers in `planted_programs` fit which workload."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from benchcore.errors import UserError
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.protocol import COMPARED
from tasks.unfair.plants import NEEDLESS, Outcome, Plant

_DIFFERS = "' differs|could not be compared"
_STATE = "timed step"
_DONATED = "Array has been deleted"
"""JAX refuses to read a result that its next step was given."""
_WORK = "the work of its case"
_NEEDLESS, _UNUSUAL = NEEDLESS[:2]

_GUARDS = {
    "' differs": "numerics",
    "could not be compared": "numerics",
    _STATE: "later steps",
    _DONATED: "later steps",
    _WORK: "products",
    _NEEDLESS: "needless work",
    _UNUSUAL: "needless work",
    "input_buffers": "input buffers",
    "owed": "owed",
    "host calls": "host calls",
}
"""What the guards are called in a table, by the part of their reasons."""


def tabulate(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Per case how many sides each guard refused, and how many were not refused by their own."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for each in outcomes:
        counts = rows.setdefault(each.duel, Counter())
        if each.plant is not None and each.as_expected:
            counts[_GUARDS.get(each.guard or "", "other")] += 1
        counts["not as expected"] += not each.as_expected
    return [
        {"case": " ".join(duel), **{name: counts[name] for name in GUARD_COLUMNS}}
        for duel, counts in rows.items()
    ]


GUARD_COLUMNS = (*dict.fromkeys(_GUARDS.values()), "not as expected")


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What a case has that a kind may need."""

    trains: bool
    rotates: bool
    has_params: bool
    has_floats: bool
    has_batch: bool


@functools.cache
def _find_facts(workload: str, name: str) -> _Facts:
    spec = load_spec(workload)
    case = spec.cases[name]
    arrays = spec.make_arrays(case, 0)
    inputs = list(arrays.inputs.values())
    return _Facts(
        trains=case.use_case == "train",
        rotates=spec.num_buffers(case) > 1,
        has_params=bool(arrays.params),
        has_floats=any(each.dtype.kind == "f" for each in inputs),
        has_batch=case.batch > 1 and any(len(each) == case.batch for each in inputs if each.ndim),
    )


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to be unfair."""

    name: str
    wrapper: str
    guard: str
    fits: Callable[[_Facts], bool] = lambda facts: True


KINDS = (
    Kind(
        name="first output for ever",
        wrapper="repeat_first_output",
        guard=f"{_DIFFERS}|{_STATE}",
    ),
    Kind(
        name="keeps the output of each input",
        wrapper="keep_output_of_each_input",
        guard=f"{_DIFFERS}|{_STATE}|{_DONATED}",
    ),
    Kind(
        name="repeats outputs by count",
        wrapper="repeat_outputs_by_count",
        guard=f"{_DIFFERS}|{_STATE}",
    ),
    Kind(
        name="inputs in bfloat16",
        wrapper="round_inputs",
        guard=_DIFFERS,
        fits=attrgetter("has_floats"),
    ),
    Kind(name="outputs in bfloat16", wrapper="round_outputs", guard=f"{_DIFFERS}|{_STATE}"),
    Kind(
        name="half of the batch",
        wrapper="compute_half_of_the_batch",
        guard=_DIFFERS,
        fits=attrgetter("has_batch"),
    ),
    Kind(
        name="first inputs in each step",
        wrapper="use_first_inputs",
        guard=_DIFFERS,
        fits=attrgetter("rotates"),
    ),
    Kind(
        name="one set of inputs placed",
        wrapper="place_inputs_once",
        guard=f"{_DIFFERS}|input_buffers",
        fits=attrgetter("rotates"),
    ),
    Kind(
        name="parameters of the build",
        wrapper="keep_params",
        guard=f"{_DIFFERS}|{_STATE}",
        fits=attrgetter("has_params"),
    ),
    Kind(name="nobody waits", wrapper="return_early", guard=f"owed|host calls|{_STATE}"),
    Kind(
        name="computes when read",
        wrapper="compute_when_read",
        guard=f"{_DIFFERS}|{_STATE}|{_WORK}",
        fits=lambda facts: not facts.trains,
    ),
    Kind(
        name="optimiser skipped",
        wrapper="skip_the_optimizer",
        guard=_DIFFERS,
        fits=attrgetter("trains"),
    ),
    Kind(
        name="does its work twice",
        wrapper="work_twice",
        guard=f"{_DIFFERS}|{_WORK}|{_NEEDLESS}",
    ),
    Kind(
        name="needless work",
        wrapper="needless_work",
        guard=f"{_NEEDLESS}|{_UNUSUAL}",
        fits=attrgetter("has_floats"),
    ),
)


def list_automatic(workload: str) -> list[Plant]:
    """Every kind that fits a workload's tiny case of each use case, on both sides. Raises UserError
    for a workload that has none."""
    plants = list(_list_of(workload))
    if not plants:
        raise UserError(
            f"wanted a workload with an output to compare, got {workload!r}; "
            f"choose one of {', '.join(list_planted_workloads())}, or 'all'"
        )
    return plants


def list_planted_workloads() -> list[str]:
    """All that have a tiny case with an output to compare."""
    return [each for each in list_workloads() if any(_list_cases(each))]


def sample(plants: Sequence[Plant]) -> list[Plant]:
    """Each kind once per workload, in its cases and on both sides in turn."""
    by_kind: dict[tuple[str, str], list[Plant]] = {}
    for plant in plants:
        by_kind.setdefault((plant.workload, plant.wrapper), []).append(plant)
    return [of[place % len(of)] for place, of in enumerate(by_kind.values())]


def _list_cases(workload: str) -> Iterator[tuple[str, Any]]:
    spec = load_spec(workload)
    for name, case in spec.cases.items():
        if name == f"tiny_{case.use_case}" and spec.tolerances(case):
            yield name, case


def _list_of(workload: str) -> Iterator[Plant]:
    for name, _ in _list_cases(workload):
        facts = _find_facts(workload, name)
        for kind in KINDS:
            if kind.fits(facts):
                for side in COMPARED:
                    yield Plant(
                        name=f"{kind.name} ({workload} {name}, {side})",
                        workload=workload,
                        case=name,
                        framework=side,
                        guard=kind.guard,
                        wrapper=kind.wrapper,
                    )
