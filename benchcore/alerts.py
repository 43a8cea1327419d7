"""Word of what happened, posted to a webhook: `text` as Slack and its like take it, and details."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import httpx

from benchcore import variables
from benchcore.errors import UserError

_TIMEOUT_S = 20.0


class AlertFailedError(Exception):
    """The webhook did not take an alert; what it was about is kept all the same."""


def find_webhook() -> str | None:
    """DEADHEAT_WEBHOOK_URL, if that is set. Raises UserError if it is no http address."""
    url = variables.WEBHOOK_URL.read()
    if url and not url.startswith(("http://", "https://")):
        raise UserError("wanted an http address in DEADHEAT_WEBHOOK_URL; mend it")
    return url


def post_alert(text: str, details: Mapping[str, Any]) -> None:
    """Tell it to the webhook, if there is one. An address may hold a token, so no error names it.

    Raises AlertFailedError where nobody took it, and UserError as `find_webhook` does.
    """
    url = find_webhook()
    if url is None:
        return
    # Slack reads <!channel> and the like as commands; these three are all that it wants escaped.
    body = {"text": html.escape(text, quote=False), **details}
    try:
        httpx.post(url, json=body, timeout=_TIMEOUT_S).raise_for_status()
    except httpx.HTTPStatusError as error:
        raise AlertFailedError(f"the webhook answered {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AlertFailedError(f"the webhook was not reached: {type(error).__name__}") from None
