"""Ad-hoc duels: what a user may name, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from benchcore.adhoc import AdhocDuel, draft_duel, parse_arm
from benchcore.errors import UserError


def test_a_contender_is_a_request_and_its_settings() -> None:
    assert parse_arm("jax@newest").settings == {"compile": "jit"}
    assert parse_arm("torch==2.15.0").name == "torch-compile"
    eager = parse_arm("torch==2.15.0,compile=none")
    assert (eager.name, eager.request, eager.settings) == (
        "torch-eager",
        "torch==2.15.0",
        {"compile": "none"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "torch,compile=fast",
        "jax,compile=default",
        "torch,mode=default",
        "torch,compile=none;rm -rf /",
        "tensorflow",
        "jax==1.0 --index-url x",
        "",
    ],
)
def test_an_unknown_contender_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="wanted"):
        parse_arm(text)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (AdhocDuel(workload="nope", case="x", contenders=("jax",)), "no workload 'nope'"),
        (AdhocDuel(workload="mlp", case=None, contenders=("jax",)), "cases are tiny_infer"),
        (AdhocDuel(workload="mlp", case="x", contenders=("jax",)), "no case 'x'"),
        (AdhocDuel(workload="mlp", case="tiny_infer", contenders=()), "name two"),
    ],
)
def test_an_unknown_duel_is_refused(asked: AdhocDuel, words: str) -> None:
    with pytest.raises(UserError, match=words):
        draft_duel(asked)
