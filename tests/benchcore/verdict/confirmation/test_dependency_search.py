"""The search for a dependency, where what each environment takes is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

import numpy as np
import pytest

from benchcore.verdict.allocations import judge_allocations
from benchcore.verdict.confirmation.dependency_search import (
    Attribution,
    Moved,
    MovePath,
    find_path,
    name_state,
    search_dependencies,
)
from benchcore.verdict.samples import Judgement

NAMES = ("jaxlib", "xla-plugin", "cudnn", "cublas", "triton", "nccl", "numpy", "jax")
PATH = MovePath(moves=tuple((each,) for each in NAMES), refused=())


class Lab:
    """Measures environments in which each group of moves costs its log, once all of it is there."""

    def __init__(self, costs: Mapping[tuple[str, ...], float], *noisy: Moved) -> None:
        self.costs, self.noisy = costs, noisy
        self.judged: list[tuple[Moved, Moved, bool]] = []

    def level(self, moved: Moved) -> float:
        return sum(cost for needs, cost in self.costs.items() if moved >= set(needs))

    def judge(self, old: Moved, new: Moved, num_starts: int, fresh: bool) -> Judgement:
        self.judged.append((old, new, fresh))
        seed = crc32(f"{name_state(old)} {name_state(new)} {fresh}".encode())
        rng = np.random.default_rng(seed)
        spread = 0.5 if {old, new} & set(self.noisy) else 0.003
        middle = self.level(new) - self.level(old)
        starts = [middle + rng.normal(0, spread) + rng.normal(0, 0.003, 6) for _ in range(12)]
        return judge_allocations(starts[:num_starts], prefer="same")

    def run(
        self, path: MovePath = PATH, why_not: Callable[[Moved], str | None] = lambda moved: None
    ) -> Attribution:
        return search_dependencies(path, self.judge, why_not)


@pytest.mark.parametrize("name", NAMES)
def test_the_dependency_that_changed_it_is_named_and_moved_alone(name: str) -> None:
    lab = Lab({(name,): 0.05})
    (culprit,) = lab.run().culprits
    assert (culprit.packages, culprit.manner, culprit.partners) == ((name,), "alone", ())
    assert culprit.effect.log_ratio == pytest.approx(0.05, abs=0.01)
    assert culprit.alone is not None and culprit.alone.verdict == "different"
    assert any(fresh for *_, fresh in lab.judged)  # the culprit, in starts of its own
    assert (frozenset(), frozenset([name]), False) in lab.judged or name == NAMES[0]


def test_two_that_each_change_it_are_both_named() -> None:
    culprits = Lab({("cudnn",): 0.05, ("numpy",): 0.08}).run().culprits
    assert sorted((each.packages, each.manner) for each in culprits) == [
        (("cudnn",), "alone"),
        (("numpy",), "alone"),
    ]


@pytest.mark.parametrize("partner", ["jaxlib", "cudnn", "cublas"])
def test_two_packages_that_change_it_only_together_are_reported_so(partner: str) -> None:
    (culprit,) = Lab({("triton", partner): 0.06}).run().culprits
    assert (culprit.packages, culprit.manner, culprit.partners) == (
        ("triton",),
        "together",
        (partner,),
    )
    assert culprit.reason == "changed alone, it has no effect"
    assert culprit.alone is not None and culprit.alone.verdict == "same"


def test_a_dependency_that_cannot_move_alone_is_reported_and_not_counted() -> None:
    def why_not(moved: Moved) -> str | None:
        return "triton needs the new cudnn" if "triton" in moved and "cudnn" not in moved else None

    lab = Lab({("triton",): 0.06})
    (culprit,) = lab.run(why_not=why_not).culprits
    assert (culprit.packages, culprit.manner, culprit.alone) == (("triton",), "undecided", None)
    assert culprit.reason == "it could not be changed alone, as triton needs the new cudnn"
    assert not any(why_not(state) for old, new, _ in lab.judged for state in (old, new))


def test_a_partner_that_must_move_with_others_is_named_with_them() -> None:
    """With triton moved, jaxlib and the plugin can only be moved at once."""

    def why_not(moved: Moved) -> str | None:
        tied = {"triton", "jaxlib"} <= moved and "xla-plugin" not in moved
        return "jaxlib needs its plugin" if tied else None

    lab = Lab({("triton", "jaxlib"): 0.06})
    (culprit,) = lab.run(why_not=why_not).culprits
    assert (culprit.manner, culprit.partners) == ("together", ("jaxlib", "xla-plugin"))
    assert not any(why_not(state) for old, new, _ in lab.judged for state in (old, new))


def test_an_unknown_single_effect_is_not_called_an_interaction() -> None:
    lab = Lab({("triton",): 0.06}, frozenset(["triton"]))
    (culprit,) = lab.run().culprits
    assert culprit.manner == "undecided"
    assert culprit.reason.startswith("its effect alone is unknown: ")


def test_where_nothing_changed_no_dependency_is_named() -> None:
    found = Lab({}).run()
    assert (found.search.verdict, found.culprits) == ("same", ())


def test_the_path_moves_one_after_the_other_in_the_order_given() -> None:
    assert find_path(NAMES, lambda moved: None) == PATH


def test_dependencies_that_the_resolver_ties_move_together_and_are_reported() -> None:
    def why_not(moved: Moved) -> str | None:
        return "they go together" if len(moved & {"jax", "jaxlib"}) == 1 else None

    path = find_path(("jaxlib", "jax", "numpy", "scipy"), why_not)
    assert path.moves == (("numpy",), ("scipy",), ("jaxlib", "jax"))
    assert path.refused == (("jaxlib", "they go together"),)  # and not again beside numpy


def test_two_of_many_that_must_move_first_are_found() -> None:
    """Everything else needs jax and jaxlib, which need each other."""

    def why_not(moved: Moved) -> str | None:
        pair = moved & {"jax", "jaxlib"}
        return None if len(pair) == 2 or not moved else "not without the new jax"

    path = find_path(("flax", "jaxlib", "jax", "optax"), why_not)
    assert path.moves == (("jaxlib", "jax"), ("flax",), ("optax",))


def test_where_nothing_can_be_moved_alone_all_moves_at_once() -> None:
    path = find_path(("a", "b", "c"), lambda moved: "no")
    assert path.moves == (("a", "b", "c"),)
    (culprit,) = Lab({("b",): 0.05}).run(path).culprits
    assert (culprit.packages, culprit.manner) == (("a", "b", "c"), "alone")
