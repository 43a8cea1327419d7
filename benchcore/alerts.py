"""Posts alerts to a webhook: a `text` as Slack expects it, and the details as JSON."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import httpx

from benchcore import variables
from benchcore.errors import UserError

_TIMEOUT_S = 20.0


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
