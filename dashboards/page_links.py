"""Links to the site's other pages: defect studies, waterfalls, trainings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pandas as pd

_KINDS = {"defects.html": "Defect study", "waterfall.html": "Waterfall"}
_TRAINING = "Training on images"


@dataclass(frozen=True, kw_only=True)
class SitePage:
    """A page in a campaign's folder; a link shows its `kind` and `title`."""

    kind: str
    title: str
    campaign: str
    file: str

    def address(self, from_root: bool) -> str:
        """The relative address, from the site's first page or from a campaign's page."""
        return f"{'' if from_root else '../'}{quote(self.campaign, safe='')}/{self.file}"


def list_pages(site: Path, duels: pd.DataFrame, trained: Collection[str]) -> list[SitePage]:
    """The newest page of each kind, case and device in the site, sorted by kind.

    `duels` comes from `benchcore.store.frames.duels.duel_frame`: a campaign's last duel is its
    subject, earlier ones measure the device's ceilings. `trained` are campaigns with epochs.
    """
    found: dict[tuple[str, str], SitePage] = {}
    last = duels.sort_values("started_at", kind="stable").drop_duplicates("campaign", keep="last")
    for duel in last.to_dict("records"):
        campaign = str(duel["campaign"])
        title = f"{duel['workload']} {duel['case_name']} on {duel['device_model']}"
        kinds = {**_KINDS, **({"index.html": _TRAINING} if campaign in trained else {})}
        for file, kind in kinds.items():
            if (site / campaign / file).is_file():
                page = SitePage(kind=kind, title=title, campaign=campaign, file=file)
                found[kind, title] = page
    return sorted(found.values(), key=lambda page: (page.kind, page.title))
