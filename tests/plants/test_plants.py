"""Every unfair side is refused by the guard that is named for it, and every fair side passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_here
from duel_orders import on_one_cpu

from benchcore.errors import UserError
from benchcore.protocol import EnvironmentRecord
from tasks.unfair.automatic_plants import list_automatic
from tasks.unfair.framework_servers import FrameworkServers
from tasks.unfair.plants import Outcome, Plant, read_plants, run_plants

pytestmark = pytest.mark.timeout(1800)  # the first of a duel's plants runs all of them
_AUTOMATIC = (
    ("mlp", "round_inputs", "jax"), ("mlp", "compute_when_read", "jax"),
    ("mlp", "work_twice", "jax"), ("mlp", "return_early", "torch"),
    ("ensemble", "round_outputs", "torch"), ("recompile", "use_first_inputs", "torch"),
    ("kernels", "round_inputs", "jax"),
)  # fmt: skip
"""Those that need a framework; the others are tried on programs in numpy. `ensemble`'s fair sides
once read back unlike settings, as its stacked parameters have an axis more."""
WRITTEN = read_plants()
PLANTS = [
    *(each for each in WRITTEN if each.in_tests),
    *(
        each
        for workload, wrapper, side in _AUTOMATIC
        for each in list_automatic(workload)
        if each.case in ("tiny_infer", "tiny_op")
        and (each.wrapper, each.framework) == (wrapper, side)
    ),
]
_SIDES = ("jax", "torch")


DUELS = sorted({plant.duel for plant in PLANTS})
Run = Callable[[tuple[str, str]], list[Outcome]]


@pytest.fixture(scope="module")
def run(
    framework_environment: Callable[[str], EnvironmentRecord],
    framework_servers: FrameworkServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Run all plants of a duel, once."""
    ran: dict[tuple[str, str], list[Outcome]] = {}

    def run_duel(duel: tuple[str, str]) -> list[Outcome]:
        if duel not in ran:
            environments = {each: framework_environment(f"{each}@newest") for each in _SIDES}
            plants = [plant for plant in PLANTS if plant.duel == duel]
            plants.sort(key=lambda plant: plant.kind)
            folder = tmp_path_factory.mktemp("plants")
            with on_one_cpu():
                found = run_plants(
                    plants, environments, folder, lambda text: None, framework_servers
                )
                ran[duel] = list(found)
        return ran[duel]

    return run_duel


def test_plants_cover_both_sides_and_every_kind_of_work() -> None:
    assert len({plant.name for plant in PLANTS}) == len(PLANTS) >= 30 + len(_AUTOMATIC)
    assert {plant.framework for plant in PLANTS} == {"jax", "torch"}
    wanted = {"mlp", "mobilenet_v3_small", "vit_b_16"}
    wanted |= {"ensemble", "ops", "recompile", "kernels"}
    assert {plant.workload for plant in PLANTS} >= wanted
    assert any(plant.case.endswith("_x2") for plant in PLANTS), "of several devices"


def test_the_page_about_plants_has_their_true_number() -> None:
    page = (Path(__file__).parents[2] / "benchmarks" / "plants.md").read_text(encoding="utf-8")
    num_tested = sum(plant.in_tests for plant in WRITTEN)
    assert f"runs {len(WRITTEN)} sides, {num_tested} of them also in" in page


def test_every_plants_text_stands_once_in_the_file_that_it_patches() -> None:
    folder = Path(__file__).parents[2] / "benchcore" / "workloads"
    counts = {each.name: (folder / each.file).read_text().count(each.old) for each in WRITTEN}
    assert {name: count for name, count in counts.items() if count != 1} == {}


@pytest.mark.provisions
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_an_unfair_side_is_refused_by_its_guard(run: Run, plant: Plant) -> None:
    (outcome,) = (each for each in run(plant.duel) if each.plant == plant)
    assert outcome.refused_by, outcome.reasons


@pytest.mark.provisions
@pytest.mark.parametrize("duel", DUELS, ids="-".join)
def test_the_right_sides_are_not_refused(run: Run, duel: tuple[str, str]) -> None:
    right = [each for each in run(duel) if each.plant is None]
    num_duels = len({plant.kind for plant in PLANTS if plant.duel == duel})
    assert [each.contender for each in right] == [f"right-{each}" for each in _SIDES] * num_duels
    assert {each.reasons for each in right} == {()}


def test_a_side_that_counts_or_that_another_guard_refuses_is_not_as_expected() -> None:
    plant = PLANTS[0]

    def outcome(plant: Plant | None, *reasons: str) -> Outcome:
        return Outcome(duel=("mlp", "tiny"), contender="c", plant=plant, reasons=reasons)

    assert outcome(plant, f"because of {plant.guard}!").as_expected
    assert not outcome(plant).as_expected
    assert not outcome(plant, "by luck").as_expected
    assert outcome(None).as_expected
    assert not outcome(None, "refused").as_expected


def test_plants_whose_duels_have_other_settings_run_in_other_duels() -> None:
    plant = replace(PLANTS[0], settings={}, own={})
    assert replace(plant, own={"strategy": "tensor"}).kind == plant.kind
    assert replace(plant, settings={"strategy": "tensor"}).kind != plant.kind


def test_a_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="wanted a file of unfair sides"):
        read_plants(tmp_path / "absent.toml")
    (tmp_path / "odd.toml").write_text('[[plant]]\nname = "lacks the rest"\n')
    with pytest.raises(UserError, match="wanted a file of unfair sides"):
        read_plants(tmp_path / "odd.toml")


def test_an_unknown_plant_is_bad_input() -> None:
    done = run_here("plants", "--only", "such a thing")
    assert (done.returncode, "wanted a part of a name" in done.stderr) == (2, True)


def test_an_interrupted_command_has_reported_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = PLANTS[0]

    def run_until_interrupted(*given: object) -> Iterator[Outcome]:
        def outcome(contender: str, plant: Plant | None, *reasons: str) -> Outcome:
            return Outcome(duel=("mlp", "tiny"), contender=contender, plant=plant, reasons=reasons)

        yield outcome("right-jax", None)
        yield outcome("plant0", plant, "by luck")
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.cli.plants.provision_sides", lambda *given: {})
    monkeypatch.setattr("flows.cli.plants.run_plants", run_until_interrupted)
    done = run_here("plants")
    assert done.returncode != 0
    assert "  as expected: jax, the fair side: counts\n" in done.stderr
    assert f"  NOT as expected: {plant.framework}, {plant.name}: by luck\n" in done.stderr
