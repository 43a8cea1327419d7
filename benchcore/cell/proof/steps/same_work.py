"""Checks that timed steps do the same work as steps after a reset, before the proof reads anything
from the program; and that steps do the same work with and without random numbers.

A program knows that it is watched when `place`, `read`, `reset`, `state` or `use_random` is called.
So its own code's calls, and torch's operators, are listed before any of these calls and after.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from benchcore.cell.nested import list_arrays
from benchcore.cell.proof.steps.left_behind import StepUnlikeProofError
from benchcore.cell.proof.watching.host_work import COMPILED, watch_compiled

OPERATOR = "operator "
"""How the names of a framework's operators begin."""
_OF_DROPPING = ("bernoulli", "div", "empty", "mul", "native_dropout", "new_empty", "rand")
"""Operators that a step may have more of where it draws random numbers."""
_OF_MOVING = (
    "_unsafe_view", "as_strided", "clone", "copy_", "detach", "expand", "new_zeros", "reshape",
    "view", "zeros_like",
)  # fmt: skip
"""Operators that compute nothing. Which of them there are depends on whether numbers are dropped in
place, as torch then follows the views of what was changed."""


def list_calls(step: Callable[[], object]) -> list[str]:
    """Names of what a step's own code calls. A compiled function of JAX is listed with the size of
    its arguments. Lists nothing before Python 3.12."""
    found: list[str] = []

    def read(given: Mapping[str, Any]) -> None:
        sizes = [math.prod(each.shape) for each in list_arrays(given["args"])]
        found[-1] += f" of {sum(sizes)} elements in {len(sizes)} arrays"

    with watch_compiled(lambda called: found.append(_name(called)), read):
        step()
    return found


def _name(called: Any) -> str:
    kind = type(called).__name__
    name = str(getattr(called, "__qualname__", kind))
    if kind == "Compiled":  # by hand, of one shape
        return f"{name} {id(called)}"
    return f"{name} {_identify(called)}" if kind == COMPILED else name


def _identify(compiled: Any) -> list[int]:
    """Identify a compiled function by its code and its closure. A function that is compiled anew in
    each step stays the same here; it is refused for its compilations."""
    function = getattr(compiled, "__wrapped__", compiled)
    held = [getattr(function, "__code__", function), *(getattr(function, "__defaults__", ()) or ())]
    for cell in getattr(function, "__closure__", ()) or ():
        with suppress(ValueError):  # nothing is in it yet
            held.append(cell.cell_contents)
    return [id(each) for each in held]


def check_timed(timed: Sequence[str], later: Sequence[str]) -> None:
    """Raises StepUnlikeProofError if steps between two `timed` blocks did other work than equally
    many steps after the blocks. Nothing is compared where nothing was listed."""
    lacking, more = _subtract(later, timed), _subtract(timed, later)
    if timed and (lacking or more):
        raise StepUnlikeProofError(
            f"between the timed blocks the step did not call {_join(lacking)}, and called "
            f"{_join(more)} instead: the timed step does something else than the proven one"
        )


def check_same(before: Sequence[str], after: Sequence[str]) -> None:
    """Raises StepUnlikeProofError if steps `before` the proof read anything did other work than
    equally many steps `after` a reset."""
    lacking, more = _subtract(after, before), _subtract(before, after)
    if lacking or more:
        raise StepUnlikeProofError(
            f"before the proof read anything the step did not call {_join(lacking)}, and called "
            f"{_join(more)} instead: the timed step does something else than the proven one"
        )


def check_unseen(known: Sequence[str], unseen: Sequence[str], buffers: int) -> None:
    """Raises StepUnlikeProofError if a step on `unseen` inputs did other work than the steps on the
    `known` ones, one for each of so many `buffers`."""
    each_unseen = [*unseen] * buffers
    lacking, more = _subtract(each_unseen, known), _subtract(known, each_unseen)
    if lacking or more:
        raise StepUnlikeProofError(
            f"on inputs that the program had seen the step did not call {_join(lacking)}, and "
            f"called {_join(more)} instead: the timed step keeps results for its inputs"
        )


def check_without_random(without: Sequence[str], drawing: Sequence[str]) -> None:
    """Raises StepUnlikeProofError if steps without random numbers do other work than equally many
    steps with them, except for dropping."""
    lacking = [each for each in _subtract(without, drawing) if not _is_of(_OF_MOVING, each)]
    allowed = (*_OF_DROPPING, *_OF_MOVING)
    more = [each for each in _subtract(drawing, without) if not _is_of(allowed, each)]
    if lacking or more:
        raise StepUnlikeProofError(
            f"with random numbers the step did not call {_join(lacking)}, and called {_join(more)} "
            "instead: the timed step does something else than the proven one, which draws none"
        )


def _is_of(operators: tuple[str, ...], name: str) -> bool:
    return name.startswith(OPERATOR) and name.removeprefix(OPERATOR).startswith(operators)


def _subtract(some: Sequence[str], others: Sequence[str]) -> list[str]:
    return sorted((Counter(some) - Counter(others)).elements())


def _join(names: Sequence[str]) -> str:
    return ", ".join(repr(each) for each in dict.fromkeys(names)) or "nothing"
