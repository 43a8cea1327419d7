"""How uv is run: without a network its cache answers, and its failures are distinguished."""

import pytest
from uv_messages import (
    FORBIDDEN,
    NO_SUCH_VERSION,
    NO_WHEELS,
    UNCACHED,
    UNCACHED_WHEEL,
    UNREACHABLE,
    make_failure,
)

from benchcore.environments import uv_command
from benchcore.environments.uv_command import UvAnswer, classify_failure, run_uv_or_cached, shorten


@pytest.mark.parametrize(
    ("stderr", "failure"),
    [
        (NO_SUCH_VERSION, "unsatisfiable"),
        (NO_WHEELS, "unsatisfiable"),
        (UNREACHABLE, "unreachable"),
        (UNCACHED, "uncached"),
        (UNCACHED_WHEEL, "uncached"),
        (FORBIDDEN, "other"),
        ("", "other"),
    ],
)
def test_failures_of_uv_are_distinguished(stderr: str, failure: str) -> None:
    assert classify_failure(stderr) == failure


@pytest.mark.parametrize(
    ("cached", "failure", "offline"), [("", None, True), (UNCACHED, "uncached", True)]
)
def test_if_the_index_does_not_answer_the_cache_is_read_once(
    cached: str, failure: str | None, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def answer(arguments: list[str], **_: object) -> UvAnswer:
        calls.append(arguments)
        if "--offline" not in arguments:
            return make_failure(UNREACHABLE)
        failure = classify_failure(cached) if cached else None
        return UvAnswer(output="jax==0.12.0", message=cached, failure=failure, offline=True)

    monkeypatch.setattr(uv_command, "run_uv", answer)

    result = run_uv_or_cached(["pip", "compile", "-"])

    assert calls == [["pip", "compile", "-"], ["pip", "compile", "-", "--offline"]]
    assert (result.failure, result.offline) == (failure, offline)
    assert ("refused" in result.message) is (failure is not None)


def test_uv_that_never_answers_counts_as_no_network() -> None:
    answer = uv_command.run_uv(["pip", "compile", "-"], timeout_s=0.001)

    assert (answer.failure, answer.message) == ("unreachable", "uv pip gave no answer within 0 s")


def test_long_messages_keep_their_beginning_and_end() -> None:
    short = shorten("first " + "x" * 10_000 + " last")

    assert short.startswith("first")
    assert short.endswith("last")
    assert len(short) < 2_000
