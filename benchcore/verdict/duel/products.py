"""Judge the matrix products and convolutions of a step: as many as the case has, in its precision.

Both sides' products are counted with one formula each (`benchcore.cell.explain.products`), which
gives the analytic count of every case exactly, in inference and in training, for both frameworks.
So the band is narrow, and only products are in it: XLA's own analysis counts elementwise work too,
4 to 18 % of the tiny cases, and no taps in the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchcore.cell.explain.products import NOTHING_COMPILED
from benchcore.cell.proof.following.needless import TOO_LARGE

BAND = 0.01
"""How far the counted FLOPs may be from the analytic ones: none of ours is."""
FEWEST_KEPT = 0.9
"""Least share of the requested FLOPs that a step's compiled program must do. XLA simplifies
up to 0.3 % away; above 1 there is no bound, as a compiler may compute things twice (XLA's gradients
of depthwise convolutions on a CPU: 3.9 and 6.6 times in tiny MobileNetV3 and EfficientNet). A case
without products has no such bound, as XLA may know better formulas: of a cumulative sum of 4,096
numbers it does 3 % of what it counts before. Sums over one number are no work, and torch's share is
of matrices with two rows and columns or more."""
SHARED = "several devices share the step"
"""Why the values of a step are not followed."""
MOST_NEEDLESS = {"jax": 0.04, "torch": 0.005}
"""Share of the elements that a step moves for nothing. Of our tiny cases: up to 0.023 in JAX (in
`cifar_resnet`: the gradient of a batch norm's variance by its mean is 0 but for rounding), and up
to 0.0013 in torch."""
MOST_NEEDLESS_CALLS = 0.05
"""Share of torch's operations: each costs the host time. Ours: up to 0.02."""
MOST_NEARLY = {"jax": 0.08, "torch": 0.005}
"""The same, with values that differ in their last digits taken for one. Of our tiny cases: up to
0.044 in JAX (`efficientnet_b0`, training), and no more than needless in torch."""
MOST_COPIES = 0.01
"""Share of the elements that a step moves to put together what was there before it: ours put
nothing together."""
_DTYPES = {
    "fp32_ieee": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "bf16_autocast": "bfloat16",
}
"""Dtype of the operands. TF32 is a rounding of float32, which the canary checks."""


def judge_products(
    name: str,
    found: Mapping[str, Any] | None,
    *,
    framework: str,
    precision: str,
    analytic: int,
    on_gpu: bool,
) -> dict[str, str]:
    """Why a contender's products are not those of its case, by check; "" = they are.

    `found` is `effective.products` of its document, `analytic` the case's FLOPs of a step.
    """
    if found is None or found["flops"] is None or found["compiled_dtypes"] is None:
        missing = {} if found is None else found["missing"]
        why = "; ".join(missing.values()) or "its document has no count"
        return {**dict.fromkeys(CHECKS, ""), "uncounted": f"{name}'s step was not counted: {why}"}
    wanted = _DTYPES[precision]
    compiled = {wanted} if on_gpu else {wanted, "float32"}  # CPUs widen bfloat16
    return {
        "uncounted": "",
        "work": _judge_work(name, sum(found["flops"].values()), analytic),
        "dtype": _judge_dtypes(name, "asks for", set(found["flops"]), {wanted}, precision),
        "compiled_dtype": _judge_dtypes(
            name, "is compiled to", set(found["compiled_dtypes"]), compiled, precision
        ),
        "compiled_work": _judge_compiled(name, found["compiled_share"]) if analytic else "",
        "unseen": _judge_unseen(found) if analytic and on_gpu else "",
        "needless": _judge_needless(name, found, framework, on_gpu=on_gpu),
        "unusual": _judge_unusual(name, found.get("needless")),
    }


CHECKS = {
    "uncounted": "products counted",
    "work": "work of the case",
    "dtype": "products in the case's precision",
    "compiled_dtype": "compiled in the case's precision",
    "compiled_work": "compiled without leaving work out",
    "unseen": "compiled work counted",
    "needless": "no needless work",
    "unusual": "no operation that its step does not need",
}
"""The name of each check."""
REPORTED = ("unseen",)
"""Checks whose failure is a warning."""
MEANINGS = {
    "uncounted": "the work of its step could not be counted",
    "work": "its step asks for more or less work than its case has, as FLOP of its products",
    "dtype": "its step asks for products in another precision than the case's",
    "compiled_dtype": "its step is compiled to products in another precision than the case's",
    "compiled_work": "its compiled program does less work than its step asks for",
    "unseen": "how much of its work its compiled program does on a GPU could not be counted",
    "needless": "its step does work whose results are not used or were known before, or work that "
    "could not be followed",
    "unusual": "its step does what no step needs, such as reading a clock",
}
"""The reason of a failure of each check, whatever the row."""


def _judge_work(name: str, counted: int, analytic: int) -> str:
    if abs(counted - analytic) <= BAND * analytic:
        return ""
    share = f"{counted / analytic:.3g} times" if analytic else "more than"
    return (
        f"{name}'s step asks for {share} the work of its case: products of {counted:.4g} FLOP, "
        f"where the case has {analytic:.4g}"
    )


def _judge_dtypes(name: str, verb: str, found: set[str], allowed: set[str], precision: str) -> str:
    if found <= allowed:
        return ""
    return (
        f"{name}'s step {verb} products in {', '.join(sorted(found - allowed))}; "
        f"{precision} has them in {' or '.join(sorted(allowed))}"
    )


def _judge_compiled(name: str, share: float | None) -> str:
    if share is None or share >= FEWEST_KEPT:
        return ""
    return f"{name}'s compiled program does {share:.3g} of the work that its step asks for"


def _judge_unseen(found: Mapping[str, Any]) -> str:
    """An eager step has no compiled program. Without a name, so that a page shows one row for all
    sides of a duel: most compiled ones on a GPU have the same reason."""
    why = found["missing"].get("compiled_share", "not counted")
    if found["compiled_share"] is not None or why == NOTHING_COMPILED:
        return ""
    return f"how much of its work a compiled program does is not known: {why}"


def _judge_needless(name: str, found: Mapping[str, Any], framework: str, *, on_gpu: bool) -> str:
    """Absent in older documents, where several devices share a step, and for large steps. On a GPU,
    where this has not been run, a missing count is not a reason yet."""
    needless, why = found.get("needless"), found["missing"].get("needless", SHARED)
    if needless is None:
        return (
            ""
            if on_gpu or why in (SHARED, TOO_LARGE)
            else f"{name}'s values could not be followed: {why}"
        )
    elements, operations = needless["elements"], needless["operations"]
    too_many = framework == "torch" and operations > MOST_NEEDLESS_CALLS
    if elements <= MOST_NEEDLESS.get(framework, 0.0) and not too_many:
        return _judge_nearly(name, needless, framework)
    return (
        f"{name}'s step does {elements:.2g} of its work needlessly ({operations:.2g} of its "
        f"operations: {', '.join(needless['names'][:5])}): their results are not used, or were "
        "known before"
    )


def _judge_nearly(name: str, needless: Mapping[str, Any], framework: str) -> str:
    """Absent in older documents."""
    nearly, copies = needless.get("nearly", 0.0), needless.get("copies", 0.0)
    if nearly > MOST_NEARLY.get(framework, 0.0):
        return f"{name}'s step does {nearly:.2g} of its work to change no more than last digits"
    if copies > MOST_COPIES:
        return f"{name}'s step does {copies:.2g} of its work to copy its parameters"
    return ""


def _judge_unusual(name: str, needless: Mapping[str, Any] | None) -> str:
    unusual = needless["unusual"] if needless else ()
    return f"{name}'s step does what no step needs: {', '.join(unusual[:5])}" if unusual else ""
