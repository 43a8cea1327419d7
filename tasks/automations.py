"""Makes a Prefect server's automations what they are to be: a part of `deploy`, so all or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from prefect.automations import AutomationCore
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import Automation

from benchcore.alerts import find_webhook

TAG = "deadheat"
"""What a deployment or an automation bears that `deploy` may take away again."""
_BLOCK = "deadheat-alerts"
_PAGE = 200


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What automations act on: deployments by their full names, the block of the webhook, where
    there is one, and whether all that would begin is held back."""

    deployments: Mapping[str, UUID]
    webhook: UUID | None
    paused: bool = False


Automations = Callable[[Targets], Sequence[AutomationCore]]
"""What is wanted of these."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What there was before, to go back to."""

    automations: Mapping[str, Automation]
    webhook: Webhook | None


def remember(client: SyncPrefectClient) -> Kept:
    """What there is of ours."""
    return Kept(automations=list_ours(client), webhook=_load_webhook())


def list_ours(client: SyncPrefectClient) -> dict[str, Automation]:
    """The automations that bear our tag, by name."""
    found: list[Automation] = []
    page: list[Automation] | None = None
    while page is None or len(page) == _PAGE:
        page = client.read_automations(limit=_PAGE, offset=len(found))
        found += page
    return {each.name: each for each in found if TAG in each.tags}


def keep_webhook() -> UUID | None:
    """Have the server know DEADHEAT_WEBHOOK_URL, which it posts to itself: when a night is missing
    there may be no worker. Without one it forgets what it knew."""
    url, known = find_webhook(), _load_webhook()
    if url is None:
        if known is not None:
            Webhook.delete(_BLOCK)
        return None
    if known is None or known.url.get_secret_value() != url:
        known = Webhook(url=url)  # type: ignore[arg-type]
        known.save(_BLOCK, overwrite=True)
    return known._block_document_id


def reconcile(
    client: SyncPrefectClient, wanted: Sequence[AutomationCore], before: Kept
) -> list[str]:
    """Make what is new, change what differs; one that somebody switched off stays off. The names
    of those that nothing asks for any more, which `remove` takes away."""
    for each in wanted:
        old = before.automations.get(each.name)
        if old is None:
            client.create_automation(each)
            continue
        each.enabled = old.enabled
        if _describe(each) != _describe(old):  # else it would count its time from now
            client.update_automation(old.id, each)
    return sorted(before.automations.keys() - {each.name for each in wanted})


def remove(client: SyncPrefectClient, names: Sequence[str], before: Kept) -> None:
    """Take automations away."""
    for name in names:
        client.delete_automation(before.automations[name].id)


def restore(client: SyncPrefectClient, before: Kept) -> None:
    """Make all of ours what it was before."""
    for name, each in list_ours(client).items():
        old = before.automations.get(name)
        if old is None:
            client.delete_automation(each.id)
        elif _describe(each) != _describe(old):
            client.update_automation(old.id, AutomationCore(**_describe(old)))
    if before.webhook is not None:
        before.webhook.save(_BLOCK, overwrite=True)
    elif _load_webhook() is not None:
        Webhook.delete(_BLOCK)


def _describe(automation: AutomationCore) -> dict[str, Any]:
    """All that is ours to say; what an automation that is read has beside it is the server's."""
    said = AutomationCore(**automation.model_dump(exclude={"id", "owner_resource"}))
    return said.model_dump(exclude={"owner_resource"})


def _load_webhook() -> Webhook | None:
    try:
        found = Webhook.load(_BLOCK)
    except ValueError:  # there is no such block
        return None
    assert isinstance(found, Webhook)
    return found
