"""Settings that a search may try: choices of a case and device, and the order of their duels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchcore.planning.tuning.fair_settings import Candidate, descend, drop_defaults, list_choices

Decide = Callable[[Candidate], bool]


def _descend(choices: Mapping[str, tuple[str, ...]], decide: Decide) -> list[tuple[str, bool]]:
    search, won, met = descend(choices), None, []
    while True:
        try:
            candidate = next(search) if won is None else search.send(won)
        except StopIteration:
            return met
        won = decide(candidate)
        met.append((candidate.change, won))


_CHOICES = {"compile": ("a", "b", "c"), "layout": ("x", "y")}


def test_each_change_is_tried_once_and_the_search_ends_where_none_wins() -> None:
    met = _descend(_CHOICES, lambda candidate: False)
    assert met == [("compile=b", False), ("compile=c", False), ("layout=y", False)]


def test_after_a_win_every_other_change_meets_the_new_best() -> None:
    met = _descend(_CHOICES, lambda candidate: candidate.change == "layout=y")
    won = met.index(("layout=y", True))
    assert met[won + 1 :] == [("compile=b", False), ("compile=c", False)]


def test_no_two_settings_meet_twice_however_the_duels_end() -> None:
    seen: list[frozenset[Any]] = []

    def always(candidate: Candidate) -> bool:
        sides = (candidate.best, candidate.settings)
        seen.append(frozenset(frozenset(each.items()) for each in sides))
        assert sum(candidate.best[key] != candidate.settings[key] for key in _CHOICES) == 1
        return True

    _descend(_CHOICES, always)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("workload", "case", "framework", "device", "keys"),
    [
        ("mlp", "train_b128", "torch", "cpu", {"compile", "optimizer"}),
        ("mlp", "infer_b128", "torch", "cpu", {"compile"}),
        ("mlp", "train_b128", "jax", "cpu", {"compile", "donate", "xla"}),
        (
            "vit_b_16",
            "infer_b1",
            "jax",
            "cuda",
            {"compile", "command_buffers", "workaround", "xla"},
        ),
        (
            "vit_b_16",
            "train_b32_bf16",
            "jax",
            "cuda",
            {"compile", "donate", "command_buffers", "workaround", "xla", "attention"},
        ),
        ("vit_b_16", "infer_b1", "torch", "cpu", {"compile", "layout", "attention"}),
        ("resnet50", "infer_b1", "torch", "cuda:1", {"compile", "layout", "cudnn_benchmark"}),
        ("small_lm", "train_b32", "jax", "cpu", {"compile", "donate", "xla"}),
        (
            "small_lm",
            "train_b32_x2",
            "jax",
            "cpu",
            {"compile", "donate", "xla", "strategy", "processes"},
        ),
    ],
)
def test_only_settings_of_this_case_and_device_are_tried(
    workload: str, case: str, framework: str, device: str, keys: set[str]
) -> None:
    choices = list_choices(workload, case, framework, device)
    assert set(choices) == keys
    assert "defects" not in choices
    assert all(len(values) == len(set(values)) for values in choices.values())


def test_what_only_a_gpu_has_is_offered_there_only() -> None:
    cpu, gpu = (list_choices("vit_b_16", "train_b32", "torch", each) for each in ("cpu", "cuda"))
    assert cpu["compile"] == ("default", "none", "max-autotune")
    assert {"reduce-overhead", "max-autotune-no-cudagraphs"} <= set(gpu["compile"])
    assert (cpu["attention"], gpu["attention"][-2:]) == (
        ("usual", "math", "flash"),
        ("efficient", "cudnn"),
    )
    flags = [list_choices("mlp", "train_b128", "jax", each)["xla"] for each in ("cpu", "cuda")]
    assert set(flags[0]) & set(flags[1]) == {"usual"}


def test_an_arm_names_only_what_is_not_the_default() -> None:
    choices = list_choices("mlp", "train_b128", "torch", "cpu")
    chosen = {key: values[0] for key, values in choices.items()}
    assert drop_defaults(chosen, choices) == {"compile": "default"}
    fused = drop_defaults({**chosen, "optimizer": "fused"}, choices)
    assert fused == {"compile": "default", "optimizer": "fused"}
