"""The answer of a comparison as Markdown."""

from __future__ import annotations

from typing import Any

from comparison_findings import FOUND

from dashboards.listings.answer import write_answer

SIDE = {"name": "jax-jit-0.10.2", "status": "ok", "median_step_ns": 1_500_000, "limit_share": 0.4}
ANSWER: dict[str, Any] = {
    **FOUND,
    "case": "mlp infer_b128",
    "a": SIDE,
    "b": {**SIDE, "name": "torch-eager-2.15.0", "median_step_ns": None, "status": "crash"},
    "outputs": [],
    "outputs_agree": None,
    "program": {"same": None, "summary": "not compared: two frameworks"},
}


def test_the_verdict_comes_first_and_a_table_of_both_sides_after_it() -> None:
    lines = write_answer(ANSWER, [], "http://127.0.0.1:4201/c/index.html").splitlines()
    assert lines[0] == "## jax-jit-0.10.2 is 1.33x \\(1.30 to 1.36\\) as fast as torch-eager-2.15.0"
    assert lines[2:4] == ["| | a | b |", "|---|---|---|"]
    assert "| contender | jax-jit-0.10.2 | torch-eager-2.15.0 |" in lines
    assert "| per step | 1.50 ms | no time that counts |" in lines
    assert lines[-1] == "[The duel's page](http://127.0.0.1:4201/c/index.html)"


def test_the_reason_for_unknown_is_shown_below_the_table() -> None:
    unknown = {**ANSWER, "verdict": "unknown", "reason": "it is wide"}
    lines = write_answer(unknown, [], "file:///x").splitlines()
    assert lines[0] == "## Which of jax-jit-0.10.2 and torch-eager-2.15.0 is faster is unknown"
    assert [line for line in lines[1:] if "it is wide" in line] == [
        "Which of a and b is faster is unknown: measured a 1.33x \\(1.30 to 1.36\\) as fast as b; "
        "it is wide."
    ]


def test_messages_of_a_framework_are_text_and_never_markup() -> None:
    message = "<img src=x onerror=alert(1)> | [a](javascript:x)\n# `b` **c**"
    failure = {"name": "x", "status": "crash", "stage": "step", "reason": message}
    text = write_answer(ANSWER, [failure], "file:///x")
    (line,) = (each for each in text.splitlines() if each.startswith("x: crash"))
    assert line == (
        "x: crash in step: \\<img src=x onerror=alert\\(1\\)\\> \\| \\[a\\]\\(javascript:x\\) "
        "\\# \\`b\\` \\*\\*c\\*\\*"
    )
