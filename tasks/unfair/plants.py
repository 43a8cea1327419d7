"""Runs unfair sides: real duels in which one side's code is patched as a contender imports it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.errors import UserError
from benchcore.planning.snapshot import hash_inside, take_snapshot
from benchcore.protocol import (
    METHOD,
    SCHEMA,
    ContenderOrder,
    DuelLimits,
    DuelOrder,
    EnvironmentRecord,
)
from benchcore.running.duel_process import run_duel
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.incoming.documents import read_document
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.verdict.duel.physics import UNJUDGED
from tasks.unfair.framework_servers import (
    FrameworkServers,
    compile_briefly,
    fork_contenders,
    replace_texts,
)

PLANTS = Path(__file__).parent.parent.parent / "tests" / "plants" / "plants.toml"
Report = Callable[[str], None]
_LIMITS = DuelLimits(
    starts=1, rounds=2, passes=False, block_ms=20.0, warm_up_limit_s=0.2, block_timeout_s=60.0
)
_SETTING = "plant"
_PROGRAMS = Path(__file__).with_name("planted_programs.py")
_BUILD = 'module.build(case, arrays, {**given, "device": order["device"]})'
NEEDLESS = (
    *("of its work needlessly", "does what no step needs"),
    *("to change no more than last digits", "to copy its parameters"),
)
"""Parts of the reasons that come from following values, which takes JAX a second compilation: only
duels with a plant that needs it do so."""
_FOLLOW = "find_needless if self._num_devices == 1 else None"
_PAIRS = "in combinations(evidence, 2):\n"


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A patch of one side's file, or a wrapper around its program, and the guard that must refuse
    it."""

    name: str
    workload: str
    case: str
    framework: str
    guard: str
    """A part of the reason; or several joined by `|`, where each is enough."""
    file: str = ""
    old: str = ""
    new: str = ""
    wrapper: str = ""
    """A function of `tasks.unfair.planted_programs`."""
    in_tests: bool = True
    """Whether the project's tests run it, too: each case takes them half a minute."""
    starts: int = 1
    """Of its duel: 2 for what is unfair in a later start only."""
    compile: str = "none"
    """The compile mode of the PyTorch sides in its duel."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of all sides in its duel."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Further settings of its own side alone."""
    forked: bool = True
    """Whether the contenders of its duel are forked from one import per framework. Those of a side
    that leaves its process group are not: only below the conductor it is looked for."""

    @property
    def duel(self) -> tuple[str, str]:
        """Plants of one duel and one kind run in it together."""
        return self.workload, self.case

    @property
    def kind(self) -> tuple[int, str, tuple[tuple[str, str], ...], bool]:
        """Plants of one duel that differ in it run in several: its starts, the compile mode, other
        settings, and whether its contenders are forked."""
        return self.starts, self.compile, tuple(sorted(self.settings.items())), self.forked


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one side: a plant's, or a fair one (`plant` is None), which must pass."""

    duel: tuple[str, str]
    contender: str
    plant: Plant | None
    reasons: tuple[str, ...]
    """Why it does not count; none = it counts."""

    @property
    def refused_by(self) -> str | None:
        """The first reason that names the plant's guard."""
        guards = self.plant.guard.split("|") if self.plant else [""]
        found = (each for each in self.reasons if any(guard in each for guard in guards))
        return next(found, None)

    @property
    def guard(self) -> str | None:
        """The part of the plant's guard that the reason names."""
        guards = self.plant.guard.split("|") if self.plant else []
        return next((each for each in guards if each in (self.refused_by or "")), None)

    @property
    def as_expected(self) -> bool:
        """Whether a plant is refused by its own guard, and a fair side by none."""
        return (self.refused_by is not None) == (self.plant is not None)


def read_plants(path: Path = PLANTS) -> list[Plant]:
    """All plants, those of one duel in a row. Raises UserError."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["plant"]
        plants = [Plant(**row) for row in rows]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UserError(
            f"wanted a file of unfair sides, got {path} ({error}); run this in a checkout of the "
            "project, or name a file like tests/plants/plants.toml"
        ) from error
    return sorted(plants, key=lambda plant: (plant.duel, plant.kind))


def provision_sides(
    state: State, requests: Mapping[str, str], report: Report
) -> dict[str, EnvironmentRecord]:
    """The environments of the requested versions, by framework."""
    interpreters = find_interpreters()
    return {
        framework: provision(
            resolve(parse_request(request), interpreters), state, accelerator="cpu", report=report
        )
        for framework, request in requests.items()
    }


def run_plants(
    plants: Sequence[Plant],
    environments: Mapping[str, EnvironmentRecord],
    folder: Path,
    report: Report,
    servers: FrameworkServers,
) -> Iterator[Outcome]:
    """Run every plant beside both fair sides, in duels of their own state under `folder`."""
    groups = groupby(plants, lambda plant: (plant.duel, plant.kind))
    for index, ((duel, _), members) in enumerate(groups):
        named = {f"plant{number}": plant for number, plant in enumerate(members)}
        report(f"measuring {' '.join(duel)}; unfair sides: {len(named)}")
        yield from _run_duel(index, duel, named, environments, folder / f"duel-{index}", servers)


def _run_duel(
    index: int,
    duel: tuple[str, str],
    plants: Mapping[str, Plant],
    environments: Mapping[str, EnvironmentRecord],
    folder: Path,
    servers: FrameworkServers,
) -> list[Outcome]:
    state = open_state(folder)
    starts, mode, others, forked = next(iter(plants.values())).kind
    settings = {
        framework: {"compile": each, **dict(others)}
        for framework, each in (("jax", "jit"), ("torch", mode))
    }
    snapshot = _plant(state, plants)
    if forked:
        fork_contenders(snapshot, servers)
    right = [
        _contender(f"right-{each}", environments[each], each, settings[each])
        for each in environments
    ]
    wrong = [
        _contender(
            name,
            environments[plant.framework],
            plant.framework,
            {**settings[plant.framework], **plant.own, _SETTING: name},
        )
        for name, plant in plants.items()
    ]
    order = DuelOrder(
        schema=SCHEMA,
        method=METHOD,
        duel_run=f"{index:016x}",
        campaign="plants",
        duel_hash=f"{index:016x}",
        workload=duel[0],
        case=duel[1],
        track="default",
        device="cpu",
        seed=7,
        limits=dataclasses.replace(_LIMITS, starts=starts).fill_in(),
        harness_version="plants",
        snapshot=hash_inside(),
        site="local",
        dataset=None,
        contenders=(*right, *wrong),
    )
    document = read_document(run_duel(order, state, snapshot, lambda event: None))
    checks = _check(state, order.campaign)
    failures = {each["name"]: each["failure"] for each in document["contenders"]}
    outcomes = []
    for contender in order.contenders:
        others = {f"right-{each}" for each in environments} - {contender.name}
        failure = failures[contender.name]
        reasons = [failure["reason"]] if failure else []
        reasons += [row["reason"] for row in checks if _concerns(row, contender.name, others)]
        outcomes.append(
            Outcome(
                duel=duel,
                contender=contender.name,
                plant=plants.get(contender.name),
                reasons=tuple(reasons),
            )
        )
    return outcomes


def _check(state: State, campaign: str) -> list[dict[str, Any]]:
    from data_checks.check import check_campaign  # Great Expectations takes seconds to import

    engine = open_database(state.database_url)
    try:
        if rejected := ingest_spool(engine, state).rejected:
            raise RuntimeError(f"ingest refused {rejected}")
        check_campaign(engine, campaign)
        return failed_check_frame(engine, campaign).to_dict("records")  # type: ignore[return-value]
    finally:
        engine.dispose()


def _concerns(row: Mapping[str, Any], name: str, others: set[str]) -> bool:
    """A critical check of this contender failed, alone or beside a fair side; apart from what no
    plant has: a proof against float64, and the device's ceilings."""
    pair = {each for each in (row["contender"], row["other"]) if isinstance(each, str)}
    reason = str(row["reason"])
    lacking = reason.startswith("not proven to compute the same") or UNJUDGED in reason
    critical = row["severity"] == "critical"
    return critical and name in pair and pair - {name} <= others and not lacking


def _contender(
    name: str, record: EnvironmentRecord, framework: str, settings: dict[str, str]
) -> ContenderOrder:
    return ContenderOrder(
        name=name,
        arm=f"{framework}-{settings.get(_SETTING, 'right')}",
        role="newest",
        framework=framework,  # type: ignore[arg-type]
        version=record.packages[framework],
        settings=settings,
        environment=record,
        environment_failure=None,
    )


_HOOK = '''

def _patch_imports(plants, plant):
    """Let the module of a plant be imported with its patch."""
    import importlib.machinery, sys

    patch = plants.get(plant)
    if patch is None or patch["wrapper"]:
        return
    if any(getattr(each, "plant", None) == plant for each in sys.meta_path):
        return  # the same program is built once more, in float32
    module = "benchcore.workloads." + patch["file"].removesuffix(".py").replace("/", ".")

    class Loader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname):
            source = open(self.path, encoding="utf-8").read()
            assert source.count(patch["old"]) == 1, "the patch does not fit"
            return compile(source.replace(patch["old"], patch["new"]), self.path, "exec")

    class Finder:
        @staticmethod
        def find_spec(fullname, path=None, target=None):
            if fullname != module:
                return None
            spec = importlib.machinery.PathFinder.find_spec(fullname, path)
            spec.loader = Loader(fullname, spec.origin)
            return spec

    assert module not in sys.modules, "imported before its patch"
    Finder.plant = plant
    sys.meta_path.insert(0, Finder)


def _build_planted(build, order, case, arrays):
    """Wrap the program of an automatic plant."""
    from benchcore.cell import planted_programs

    wrapper = _PLANTS.get(order["settings"].get("plant"), {}).get("wrapper")
    if not wrapper:
        return build()
    spec = import_spec(order["workload"])
    given = planted_programs.Given(
        framework=order["framework"],
        batch=case.batch,
        arrays=arrays,
        num_buffers=spec.num_buffers(case),
        num_proof_steps=(spec.num_proof_steps or spec.num_buffers)(case),
    )
    return planted_programs.WRAPPERS[wrapper](build, given)
'''


def _plant(state: State, plants: Mapping[str, Plant]) -> Path:
    """A copy of the measured layer with one more setting: the plant. All contenders of a framework
    share its compilations, as most of an automatic plant's program is the right one. They run few
    steps and latencies, as no guard reads how many. Each plant is compared with the fair sides,
    which come first, and with no other plant."""
    snapshot = state.root / "planted"
    shutil.copytree(take_snapshot(state.snapshots), snapshot, dirs_exist_ok=True)
    patches = {name: dataclasses.asdict(plant) for name, plant in plants.items()}
    cell = snapshot / "benchcore" / "cell"
    shutil.copy(_PROGRAMS, cell / _PROGRAMS.name)
    load = "    module = importlib.import_module(name)\n"
    accepted = "if key != INJECTED_SLOWDOWN}"
    replace_texts(
        cell / "building.py",
        {
            load: f'    _patch_imports(_PLANTS, order["settings"].get({_SETTING!r}))\n{load}',
            accepted: f"if key not in (INJECTED_SLOWDOWN, {_SETTING!r})}}",
            f"return {_BUILD}": f"return _build_planted(lambda: {_BUILD}, order, case, arrays)",
        },
        f"{_HOOK}\n_PLANTS = __import__('json').loads({json.dumps(patches)!r})\n",
    )
    replace_texts(
        cell / "processes" / "launch.py",
        {
            '"caches" / contender.name': '"caches" / contender.framework',
            "shutil.rmtree(": "_leave(",
        },
        "\n\ndef _leave(folder, **options):\n    pass\n",
    )
    compile_briefly(snapshot)
    if not any(each in plant.guard for each in NEEDLESS for plant in plants.values()):
        replace_texts(cell / "runtimes" / "jax_runtime.py", {_FOLLOW: "None"})
    fair = f'{_PAIRS}        if not a.startswith("right-"):\n            continue\n'
    replace_texts(cell / "proof" / "agreement.py", {_PAIRS: fair})
    replace_texts(cell / "start.py", {"_FEWEST_LATENCIES = 50": "_FEWEST_LATENCIES = 2"})
    replace_texts(cell / "stopping.py", {"MIN_STEPS = 50": "MIN_STEPS = 2"})
    return snapshot
