"""Alerts: the text and the details of each, and the webhook to which they are posted.

A payload is a JSON object with a `text`, as Slack expects it, and the details of its alert.
"""

from __future__ import annotations

import functools
import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from benchcore import variables
from benchcore.errors import UserError
from benchcore.protocol import name_case
from benchcore.store.database import Engine
from benchcore.store.events import list_unsent, record_sent
from benchcore.store.records import ContenderRecord, SuspicionRecord, case_of
from benchcore.store.reports.certificates import CHANGED
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import Judgement

_TIMEOUT_S = 20.0
_MOST_NAMED = 5
_MANY = 2.0
"""From here on a slow-down is written as a factor, not in percent."""
_TITLES = {"jax": "JAX", "torch": "PyTorch"}


class AlertFailedError(Exception):
    """The webhook did not accept an alert; its event stays unsent in the database."""


def find_webhook() -> str | None:
    """DEADHEAT_WEBHOOK_URL, if it is set. Raises UserError if it is not an http address."""
    url = variables.WEBHOOK_URL.read()
    if url and not url.startswith(("http://", "https://")):
        raise UserError("wanted an http address in DEADHEAT_WEBHOOK_URL; set one, or unset it")
    return url


def post_alert(text: str, details: Mapping[str, Any]) -> None:
    """Post an alert, if a webhook is set. Its address may hold a token, so no error shows it.

    Raises AlertFailedError if it was not delivered, and UserError as `find_webhook` does.
    """
    url = find_webhook()
    if url is None:
        return
    # Slack reads <!channel> and similar as commands; it requires only &, < and > to be escaped.
    body = {"text": html.escape(text, quote=False), **details}
    try:
        httpx.post(url, json=body, timeout=_TIMEOUT_S).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise AlertFailedError(f"the webhook answered {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AlertFailedError(f"the webhook was not reached: {type(error).__name__}") from None


def post_unsent(engine: Engine) -> list[str]:
    """Post the alert of every event that the webhook has not taken yet; return why some failed.

    If the process dies in between, its last alert is sent again.
    """
    refused: list[str] = []
    for event, alert in list_unsent(engine).items():
        try:
            post_alert(f"Event {event}: {alert['text']}", {"event": event, **alert["details"]})
        except AlertFailedError as error:
            refused.append(f"event {event} is stored, but its alert was not sent: {error}")
        else:
            record_sent(engine, event)
    return refused


def describe_release(
    framework: str,
    new: str,
    old: str,
    rows: Sequence[Mapping[str, Any]],
    trends: Sequence[Mapping[str, Any]] = (),
) -> str:
    """`JAX 0.12.0 against 0.11.2: mlp infer_b1 (jax-jit) is 24 % slower (22 to 26 %). Unchanged: 11
    of 16. Not shown: 4.`, from its certificates (`benchcore.store.reports.certificates`), of which
    the first ones changed most, and the trends of several releases. Names five of each at most."""
    changed = [row for row in rows if row["certificate"] in CHANGED]
    named = "; ".join(_describe_factors(row) for row in changed[:_MOST_NAMED])
    if len(changed) > _MOST_NAMED:
        named += f"; and {len(changed) - _MOST_NAMED} more"
    counts = Counter(row["certificate"] for row in rows)
    counted = f"Unchanged: {counts['unchanged']} of {len(rows)}. Not shown: {counts['not shown']}."
    title = f"{_TITLES.get(framework, framework)} {new} against {old}"
    text = f"{title}: {named or 'no change is shown'}. {counted}"
    for each in trends[:_MOST_NAMED]:
        text += f" Over {each['num_releases']} releases since {each['since']}: "
        text += f"{_describe_factors(each)}."
    return text


def _describe_factors(row: Mapping[str, Any]) -> str:
    """`mlp infer_b1 (jax-jit) is 24 % slower (22 to 26 %)`; of another metric `the compile time of
    mlp infer_b1 (jax-jit) is 1.4 times as high (1.3 to 1.5)`."""
    case = f"{case_of(row)} ({row['a_arm']})"
    factor, low, high = (row["factors"][name] for name in ("ratio", "low", "high"))
    if row["metric"] != STEP_TIME:
        return (
            f"the {row['noun']} of {case} is {factor:.3g} times as high ({low:.3g} to {high:.3g})"
        )
    if factor >= _MANY:
        return f"{case} takes {factor:.3g} times as long ({low:.3g} to {high:.3g})"
    sign, direction = (1, "slower") if factor > 1 else (-1, "faster")
    ends = sorted((_percent(math.log(each), sign) for each in (low, high)), key=float)
    return f"{case} is {_percent(math.log(factor), sign)} % {direction} ({ends[0]} to {ends[1]} %)"


def template_failed_night() -> str:
    """The payload of a night that failed or crashed, as a template for Prefect's webhook block."""
    return _template(
        "'The night ' ~ flow_run.name ~ ' ended as ' ~ flow_run.state.name ~ ': ' ~ "
        "(flow_run.state.message or 'without a reason')"
    )


def template_missing_night(patience: str) -> str:
    """The payload of missing nights: `patience` is how long none has succeeded, `26 hours`."""
    return _template(f"'No night has succeeded for {patience}'")


def _template(expression: str) -> str:
    """JSON with a `text` from a Jinja expression, escaped as in `post_alert`."""
    escaped = "replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;')"
    return f'{{"text": {{{{ ({expression}) | string | {escaped} | tojson }}}}}}'


def write_shift(
    suspicion: SuspicionRecord, finding: Finding, outcome: Mapping[str, Any]
) -> dict[str, Any]:
    """The `text` and the `details` of a confirmed shift; they are stored until they are posted."""
    details = {
        name: outcome[name]
        for name in ("suspicion", "series", "metric", "culprit", "change", "conditions")
    }
    return {"text": describe_shift(suspicion, finding), "details": details}


def describe_shift(suspicion: SuspicionRecord, finding: Finding) -> str:
    """`JAX/PyTorch speedup on mlp infer_b128 rose 5 % (3 to 7 %): PyTorch 2.15.0 is 5 % slower than
    2.14.0. Device: AMD EPYC.`, or `Compile time on mlp infer_b128 changed: the compile time of JAX
    0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5).` Names a framework only if it changed, and the
    conditions that did."""
    key = suspicion.key
    case = name_case(key.workload, key.case_name, key.track)
    moved = f"{suspicion.levels.noun.capitalize()} on {case} changed"
    if key.metric == STEP_TIME and key.control is None:
        moved = f"{_name_speedup(suspicion)} on {case} {_write_change(finding)}"
    text = f"{moved}: {_write_cause(suspicion, finding)}. Device: {suspicion.device_model}."
    changed = describe_changes(suspicion.conditions)
    return f"{text} Conditions that changed: {changed}." if changed else text


def _name_speedup(suspicion: SuspicionRecord) -> str:
    return f"{_title(suspicion.a_new)}/{_title(suspicion.b_new)} speedup"


def _write_change(finding: Finding) -> str:
    """`rose 5 % (3 to 7 %)`, or a shift of the nightly runs if fresh starts don't show it."""
    change = finding.change
    if change.verdict != "different" or change.log_ratio is None:
        return "shifted in the nightly runs"
    verb = "rose" if change.log_ratio > 0 else "fell"
    return f"{verb} {_write_percent(change, -1 if change.log_ratio < 0 else 1)}"


def _write_percent(found: Judgement, sign: int = 1) -> str:
    """`5 % (3 to 7 %)`; sign -1 makes the numbers of a fall positive."""
    middle, low, high = found.log_ratio, found.low, found.high
    assert middle is not None
    if low is None or high is None:
        return f"{_percent(middle, sign)} %"
    ends = sorted((_percent(low, sign), _percent(high, sign)), key=float)
    return f"{_percent(middle, sign)} % ({ends[0]} to {ends[1]} %)"


def _percent(log_ratio: float, sign: int = 1) -> str:
    """A log ratio in percent, with at least two digits."""
    percent = sign * 100 * math.expm1(log_ratio)
    return f"{percent:.0f}" if abs(percent) >= 10 else f"{percent:.2g}"


def _write_cause(suspicion: SuspicionRecord, finding: Finding) -> str:
    sides = {
        "a": (suspicion.a_old, suspicion.a_new, finding.a),
        "b": (suspicion.b_old, suspicion.b_new, finding.b),
    }
    write = _write_side
    if suspicion.key.metric != STEP_TIME:
        write = functools.partial(_write_amount, suspicion.levels.noun)
    if finding.culprit in ("a", "b"):
        return write(*sides[finding.culprit])
    if finding.culprit == "both":
        return " and ".join(write(*side) for side in sides.values())
    if finding.culprit == "infrastructure":
        return f"caused by the infrastructure, not by a framework: {finding.reason}"
    return f"the cause is unknown: {finding.reason}"


def _write_side(old: ContenderRecord, new: ContenderRecord, effect: Judgement | None) -> str:
    """`PyTorch 2.15.0 is 5 % slower than 2.14.0`."""
    assert effect is not None and effect.log_ratio is not None, "a culprit has an effect"
    before = old.version if old.version != new.version else "in its old environment"
    direction = "slower" if effect.log_ratio > 0 else "faster"
    percent = _percent(abs(effect.log_ratio))
    return f"{_title(new)} {new.version} is {percent} % {direction} than {before}"


def _write_amount(
    noun: str, old: ContenderRecord, new: ContenderRecord, effect: Judgement | None
) -> str:
    """`the compile time of JAX 0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5)`."""
    assert effect is not None, "a culprit has an effect"
    before = old.version if old.version != new.version else "its old environment"
    ratio, low, high = (effect.ratios[name] for name in ("ratio", "low", "high"))
    ends = f" ({low:.3g} to {high:.3g})" if low is not None and high is not None else ""
    return f"the {noun} of {_title(new)} {new.version} is {ratio:.3g} times that of {before}{ends}"


def _title(side: ContenderRecord) -> str:
    return _TITLES.get(side.framework, side.framework)
