"""Plan the comparison of any two contenders on one case, and summarise its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from benchcore.environments.version_requests import parse_request
from benchcore.errors import UserError
from benchcore.planning.catalog import check_case, load_spec
from benchcore.planning.matrix import Plan
from benchcore.planning.profiles import Match, Profile, list_sentinels
from benchcore.planning.requests import USUAL, CaseFilter, Placement, parse_arm
from benchcore.planning.tracks import DEFAULT_TRACK, TRACKS, Arm
from benchcore.protocol import DuelLimits, name_case
from benchcore.running.duel_process import result_path
from benchcore.running.plans import draft_named, load_campaign
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.profiles import list_bottlenecks
from benchcore.store.incoming.documents import read_document
from benchcore.store.reports.campaign import list_contenders
from benchcore.verdict.duel.programs import compare_programs
from benchcore.verdict.samples import swap_factors

MIN_STARTS = 5
"""Fresh processes per side: several are needed to see what differs between processes."""

_USUAL: Mapping[str, Any] = {
    "precision": "fp32_ieee",
    "devices": 1,
    "size": "base",
    "bucketed": False,
    "reduction": "clipped_sum",
}
"""Among several cases that match, the one with these fields is meant, and none of tiny size."""
_ABSENT = {"devices": 1}
"""What a case means that lacks the field."""


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """Which of a and b is faster on one case, and for how long to measure. Each side is a version
    request and its settings: `("torch", "compile=none")`."""

    workload: str
    case_filter: CaseFilter
    a: Sequence[str]
    b: Sequence[str]
    starts: int = MIN_STARTS
    max_starts: int = 20
    compilations: int = MIN_STARTS
    target: float = 0.01
    budget_s: float = 300.0
    ceilings: bool = True
    """Whether the device's ceilings are measured too, so that physics can be judged."""
    device: str = "cpu"
    track: str = DEFAULT_TRACK
    checkpoint: str | None = None
    """SHA-256 of the file with the weights of both sides, from `take_checkpoint`."""


def choose_case(
    workload: str, case_filter: CaseFilter, more: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """The only case that matches, where several do the usual one: in plain fp32, on one device.
    `more` are further fields that the case must have. Raises UserError with the available ones."""
    cases = load_spec(workload).cases
    if case_filter.case is not None:
        check_case(workload, case_filter.case)
    wanted = {
        key: value
        for key, value in dataclasses.asdict(case_filter).items()
        if key != "case" and value is not None
    } | dict(more)
    fitting = [
        name
        for name, case in cases.items()
        if case_filter.case in (None, name)
        and all(getattr(case, key, _ABSENT.get(key)) == value for key, value in wanted.items())
    ]
    usual = {key: value for key, value in _USUAL.items() if key not in wanted}
    plain = [
        name
        for name in fitting
        if all(getattr(cases[name], key, value) == value for key, value in usual.items())
    ]
    plain = [name for name in plain if not name.startswith("tiny")] or plain
    if len(plain) == 1:
        return plain[0]
    if len(fitting) == 1:
        return fitting[0]
    filters = "".join(f", {key} {str(value)[:100]!r}" for key, value in wanted.items())
    of_case = f"case {case_filter.case!r}" if case_filter.case else "one case"
    came = f"{len(fitting)} match: {', '.join(fitting)}" if fitting else "none matches"
    similar = {
        name: case
        for name, case in cases.items()
        if case.precision == (case_filter.precision or _USUAL["precision"])
    }
    raise UserError(
        f"wanted {of_case} of {workload!r}{filters}, but {came}; there are "
        f"{', '.join(_describe_case(*each) for each in (similar or cases).items())}; "
        f"choose one with --case; `deadheat workloads` lists them"
    )


def _describe_case(name: str, case: Any) -> str:
    return f"{name} ({case.use_case}, batch {case.batch}, {case.precision})"


def draft_comparison(
    question: CompareRequest, placement: Placement = USUAL, state: State | None = None
) -> Plan:
    """The plan of one duel between a and b with today's versions, and of the device's ceilings for
    the physics check. The state folder has the settings of the tuned track. Raises UserError."""
    _check_limits(question)
    case = choose_case(question.workload, question.case_filter)
    limits = DuelLimits(
        starts=question.starts,
        max_starts=question.max_starts,
        compilations=question.compilations,
        max_rounds=30,
        target=question.target,
    )
    match = Match(
        workload=question.workload,
        case=case,
        arms=tuple(_choose_arm(side, question.track) for side in (question.a, question.b)),
        track=question.track,
        expected_s=min(question.budget_s, 20.0 * question.starts),
        limits=dataclasses.replace(limits, budget_s=question.budget_s),
        checkpoint=question.checkpoint,
    )
    precision = load_spec(question.workload).cases[case].precision
    arms = list_plain_arms(question.a[0], question.b[0]) if question.ceilings else ()
    own = (question.workload, case)
    sentinels = list_sentinels(question.device, precision, arms, limits, besides=own)
    profile = Profile(
        name="compare",
        matches=(match, *sentinels),
        limits=limits,
        device=question.device,
    )
    return draft_named(profile, f"compare-{question.workload}", placement, state)


def check_frameworks(jax: str, torch: str) -> None:
    """Raises UserError unless each request is of its own framework."""
    for wanted, request in (("torch", torch), ("jax", jax)):
        if parse_request(request).framework != wanted:
            raise UserError(
                f"wanted a version of {wanted} with --{wanted}, got {request[:100]!r}; "
                f"write for example --{wanted} {wanted}@newest"
            )


def _choose_arm(side: Sequence[str], track: str) -> Arm:
    """The arm of a side: in the default track the requested one; any other track sets the settings
    itself."""
    arm = parse_arm(",".join(side))
    if track not in TRACKS:
        raise UserError(
            f"wanted a track of {', '.join(TRACKS)}, got {track!r:.100}; choose one with --track"
        )
    if track == DEFAULT_TRACK:
        return arm
    request, *settings = side
    if settings:
        raise UserError(
            f"wanted no settings for track {track!r}, which has its own, got "
            f"{settings[0][:100]!r}; leave them out, or choose track {DEFAULT_TRACK!r}"
        )
    framework = parse_request(request).framework
    known = {parse_request(each.request).framework: each for each in reversed(TRACKS[track])}
    if framework not in known:
        raise UserError(
            f"wanted {' or '.join(sorted(known))} in track {track!r}, got {framework!r}; choose "
            f"track {DEFAULT_TRACK!r}"
        )
    return dataclasses.replace(known[framework], request=request)


def list_plain_arms(*requests: str) -> tuple[Arm, ...]:
    """The frameworks of these version requests without settings, for the ceilings."""
    plain = {"jax": "", "torch": ",compile=none"}
    frameworks = {each: parse_request(each).framework for each in requests}
    return tuple(
        parse_arm(each + plain[name]) for each, name in frameworks.items() if name in plain
    )


def _check_limits(question: CompareRequest) -> None:
    limits = (
        ("--starts", question.starts, 2, 100),
        ("--max-starts", question.max_starts, question.starts, 100),
        ("--compilations", question.compilations, 1, 100),
        ("--target", question.target, 0.0001, 1),
        ("--budget", question.budget_s, 0, 1e6),
    )
    check_limits(limits, "--starts 5 --max-starts 20 --target 0.01 --budget 300")


def check_limits(limits: Iterable[tuple[str, float, float, float]], example: str) -> None:
    """Raise UserError for an option that is not from its least to its most."""
    for name, value, least, most in limits:
        if not least <= value <= most:  # nan, too
            raise UserError(
                f"wanted {name} from {least:g} to {most:g}, got {value!r}; write for example "
                f"{example}"
            )


def conclude_comparison(
    campaign: str, state: State, ratios: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The result of a measured comparison, as described in `summarise`, with the time's profile."""
    duel = load_campaign(state, campaign).duels[0]  # the others measure the device's ceilings
    engine = open_database(state.database_url)
    found = summarise(
        read_document(result_path(state, campaign, duel.duel_run)),
        [row for row in ratios if row["duel_run"] == duel.duel_run],
        list_contenders(engine, campaign),
    )
    return {**found, "why": list_bottlenecks(engine, campaign, duel.duel_run)}


def summarise(
    document: Mapping[str, Any],
    ratios: Sequence[Mapping[str, Any]],
    contenders: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The result of a comparison: which side is faster, for what it holds, and what differed.

    `document` is the duel's result, `ratios` and `contenders` are the rows from `list_ratios` and
    `list_contenders`, whose other duels, such as the device's ceilings, can have the same
    contenders. Every number is for a against b in the requested order.
    """
    a, b = document["contenders"]
    listed = {each["name"]: each for each in contenders if each["duel_run"] == document["duel_run"]}
    return {
        "case": name_case(document["duel"]["workload"], document["duel"]["case"]),
        "checkpoint": document["duel"].get("checkpoint"),
        "a": _name_side(a, listed),
        "b": _name_side(b, listed),
        **orient_ratio(next(iter(ratios), None), a["name"]),
        "node": document["allocation"]["node"],
        "device": document["allocation"]["device"]["model"],
        "stopped_by": document["duel"]["stopped_by"],
        "outputs_agree": _agrees(document["equivalence"]),
        "outputs": [
            {key: row[key] for key in ("quantity", "max_relative", "tolerance", "agrees")}
            for row in document["equivalence"]
        ],
        "program": _compare_programs(a, b),
        "differences": list(list_differences(a, b)),
    }


def _compare_programs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """How the program changed from a to b within one framework: programs of two frameworks can't be
    compared."""
    if a["framework"] != b["framework"]:
        return {"same": None, "summary": "not compared: two frameworks"}
    found = [(_find_profile(side) or {}).get("program") for side in (a, b)]
    diff = compare_programs(*found)
    return {"same": diff.same, "summary": diff.summary}


def _name_side(contender: Mapping[str, Any], listed: Mapping[str, Any]) -> dict[str, Any]:
    """`listed` has what a document can't have of its contender, such as `invalid_physics`."""
    named = {key: contender[key] for key in ("name", "framework", "version", "arm", "status")}
    found = listed.get(contender["name"], {})
    named["settings"] = contender["settings"]
    keys = ("median_step_ns", "limit_share")
    return {
        **named,
        "status": found.get("status", named["status"]),
        **{key: found.get(key) for key in keys},
    }


def orient_ratio(row: Mapping[str, Any] | None, first: str) -> dict[str, Any]:
    """The ratio as `first` against the other; across versions the row has the newer one first."""
    keys = ("verdict", "reason", "scope", "counts", "num_starts")
    if row is None:
        nothing = dict.fromkeys(("speedup", "low", "high", "scope"))
        why = "there is no ratio of these two"
        return {**nothing, "verdict": "unknown", "reason": why, "counts": False, "num_starts": 0}
    speedups = [row["speedup"], row["low"], row["high"]]
    if row["a"] != first:
        speedups = [each and round(each, 4) for each in swap_factors(*speedups)]
    named = dict(zip(("speedup", "low", "high"), speedups, strict=True))
    return {**named, **{key: row[key] for key in keys}}


def _agrees(rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether both sides agree in every quantity; None = nothing was compared."""
    return all(row["agrees"] for row in rows) if rows else None


def list_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What differed between two contenders: packages, requested settings, and those read back.

    Within one framework also the compiled program: instructions by kind, bytes, graphs and graph
    breaks, its hash, and the kernels and Python calls of a step.
    """
    comparable = a["framework"] == b["framework"] and _read_program(a) and _read_program(b)
    described = [
        {
            "environment": {
                key: side["environment"][key] for key in ("python_version", "build", "lock_sha256")
            },
            "package": side["environment"]["packages"],
            "setting": side["settings"],
            "effective": dict(_flatten(_without_products(side["effective"]))),
            "program": _read_program(side) if comparable else {},
        }
        for side in (a, b)
    ]
    for kind in described[0]:
        one, other = described[0][kind], described[1][kind]
        for name in sorted(one.keys() | other.keys()):
            of_a, of_b = one.get(name), other.get(name)
            is_eager = name in _OF_COMPILED and _OF_COMPILED[name] in (of_a, of_b)
            if of_a != of_b and not is_eager:
                yield {"kind": kind, "name": name, "a": of_a, "b": of_b}


_OF_COMPILED = {"manifest.compiled_whole": None, "manifest.shapes": "none"}
"""Read of compiled steps only, and what an eager side has: that it is one is a difference of its
own."""


def _without_products(effective: Mapping[str, Any]) -> dict[str, Any]:
    """What the step computed is checked against its case; it is not a setting."""
    return {key: value for key, value in effective.items() if not key.startswith("products")}


def _read_program(side: Mapping[str, Any]) -> dict[str, Any]:
    """The program of the profiled start; empty if there was none."""
    profile = _find_profile(side)
    if profile is None:
        return {}
    kernels = profile["num_kernels"]
    return {
        **dict(_flatten(profile["program"] or {})),
        "kernels per step": None if kernels is None else round(kernels / profile["steps"], 2),
        "python calls per step": profile.get("python_calls"),
    }


def _find_profile(side: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each["profile"] for each in side["starts"] if each.get("profile")), None)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
