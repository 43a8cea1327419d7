import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sample_frames import (
    GENERATED_AT,
    HOSTILE,
    empty_frames,
    hostile_frames,
    nightly_campaign,
    nothing_counts,
    sample_frames,
)

from dashboards.campaign_page import publish_site, render_page
from dashboards.frames import SiteFrames
from dashboards.page_links import SitePage
from dashboards.templating import escape_json, vega_bundle


class Elements(HTMLParser):
    """Counts start tags and gathers the text of script elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def _render(frames: SiteFrames, campaign: str = nightly_campaign(0)) -> str:
    return render_page(frames, campaign=campaign, generated_at=GENERATED_AT)


def _without_bundle(page: str) -> str:
    return page.replace(vega_bundle(), "")


def test_hostile_strings_stay_text() -> None:
    page = _render(hostile_frames(), campaign=HOSTILE)
    elements = Elements()
    elements.feed(_without_bundle(page))
    assert [tag for tag, _ in elements.tags].count("script") == 3
    assert not any(tag == "img" for tag, _ in elements.tags)
    assert not any(name.startswith("on") for _, attrs in elements.tags for name in attrs)
    links = [attrs["href"] or "" for tag, attrs in elements.tags if tag == "a"]
    assert not any(link.startswith("javascript:") for link in links)
    assert html.escape("<script>alert(1)</script>") in page


def test_a_workaround_is_reported_with_whether_it_is_still_needed() -> None:
    row = {
        "case": "vit_b_16 infer_b32_tf32",
        "arm": "jax-jit",
        "workaround": "workaround 3 (--xla_gpu_enable_triton_gemm=false)",
        "needs": "needed with 0.10.1, no longer with 0.10.2 <script>",
        "highest": "crash",
        "price": None,
        "price_command": None,
        "hlo": None,
        "hlo_command": None,
    }
    frames = replace(sample_frames(num_nights=1), workarounds=(row,))
    page = _without_bundle(_render(frames))
    none = _without_bundle(_render(replace(frames, workarounds=())))
    assert "needed with 0.10.1, no longer with 0.10.2 &lt;script&gt;" in page
    assert "also fails with precision highest, which is a different case" in page
    assert "Still needed?" not in none


def test_programs_are_reported_as_the_same_or_with_differences() -> None:
    frames = sample_frames(num_nights=1)
    page = _without_bundle(_render(frames))
    rows = page.partition("Did the compiled program change?")[2].partition("</table>")[0]
    other, same, unknown = re.findall(r"<td class=\"short\">(.*?)</tr>", rows)
    assert "another program</span>" in other
    assert ">dot 4 -&gt; 5, fusion 11 -&gt; 9, bytes" in other
    assert "same program</span>" in same
    assert ">(77e1c90ab3d4)<" in same
    assert "unknown</span>" in unknown
    kept_none = [row for row in frames.programs if row["same"] is None]
    page = _render(replace(frames, programs=kept_none))
    assert "Did the compiled program change?" not in page


def _links(frames: SiteFrames, *, is_first: bool) -> list[str | None]:
    elements = Elements()
    page = render_page(
        frames, campaign=nightly_campaign(0), generated_at=GENERATED_AT, is_first=is_first
    )
    elements.feed(_without_bundle(page))
    return [attrs["href"] for tag, attrs in elements.tags if tag == "a"]


def test_other_pages_are_linked_relative_to_this_one() -> None:
    frames = sample_frames(num_nights=1)
    own = SitePage(
        kind="Training on images", title="t", campaign=nightly_campaign(0), file="index.html"
    )
    frames = replace(frames, pages=(*frames.pages, own))
    first, below = (_links(frames, is_first=each) for each in (True, False))
    assert "defects-resnet50-20261120t101500/defects.html" in first
    assert "../waterfall-resnet50-20261120t111500/waterfall.html" in below
    assert not [link for link in (*first, *below) if str(link).endswith("index.html")]


def test_a_campaign_name_cannot_escape_the_site() -> None:
    links = _links(hostile_frames(), is_first=True)
    assert "javascript%3Aalert%281%29/waterfall.html" in links
    assert "%2F%2Fexample.com/waterfall.html" in links


def test_where_the_time_goes_is_a_table_of_its_own() -> None:
    page = _without_bundle(_render(sample_frames(num_nights=1)))
    assert "Step time by each framework" in page
    assert "ynn_fusion.2 [dot] 41%" in page
    assert "Where the time of a step goes" not in _without_bundle(_render(empty_frames()))


def test_epochs_on_images_are_a_table_of_their_own() -> None:
    page = _without_bundle(_render(sample_frames(num_nights=1)))
    assert "Training on a folder of images" in page
    assert "10.0 % of 5000" in page
    assert "imagenet-100" in page
    assert "Training on a folder of images" not in _without_bundle(_render(empty_frames()))


def test_json_cannot_leave_its_script_element() -> None:
    text = escape_json({"reason": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"reason": HOSTILE}
    with pytest.raises(ValueError, match="JSON"):
        escape_json(float("nan"))


def test_the_page_has_one_bundle_and_stays_light() -> None:
    page = _render(sample_frames())
    assert page.count(vega_bundle()) == 1
    assert len(page.encode()) < 1_250_000
    assert not re.search(r'(?:src|href)="(?:https?:)?//(?!example\.org)', _without_bundle(page))


def test_failures_come_before_the_step_times() -> None:
    page = _render(sample_frames())
    assert page.index("1 contender of 14 not ok") < page.index("Who is faster?")
    assert page.index("ended by signal 11") < page.index("Median step time")


def test_eager_is_never_presented_as_the_fair_pair() -> None:
    page = _render(sample_frames())
    assert "eager (not the fair pair)" in page
    assert "compiled</b>: torch.compile, the fair pair" in page


def test_a_night_where_nothing_counts_is_published_with_a_note() -> None:
    page = _render(nothing_counts())
    assert "Nothing counts tonight" in page
    assert "No pair that counts has been recorded on this device yet." in page
    assert '"frameworks":' not in page


def test_a_pair_that_does_not_count_has_no_number() -> None:
    rows = [row for row in _render(nothing_counts()).split("<tr>") if "Does not count." in row]
    assert rows
    assert all('<td class="number">withheld</td>' in row for row in rows)


def test_a_night_without_rows_is_published() -> None:
    page = _render(empty_frames())
    assert "Nothing counts tonight" in page
    assert "No contender was measured." in page
    assert "The results were not compared." in page


def test_publishing_replaces_the_whole_page(tmp_path: Path) -> None:
    for _ in range(2):
        target = publish_site(
            sample_frames(num_nights=1),
            tmp_path / "site",
            campaign=nightly_campaign(0),
            generated_at=GENERATED_AT,
        )
    assert [path.name for path in target.parent.iterdir()] == ["index.html"]
    assert target.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_a_frame_that_lacks_a_column_is_refused_by_name() -> None:
    frames = sample_frames(num_nights=1)
    with pytest.raises(ValueError, match="lacks verdict"):
        replace(frames, ratios=frames.ratios.drop(columns="verdict"))


def test_a_comparison_of_settings_is_reported_without_a_version() -> None:
    frames = sample_frames(num_nights=1)
    row = frames.ratios[frames.ratios["counts"].eq(True)].head(1)
    eager = {"a_framework": "torch", "a_version": "2.15.0", "a_arm": "torch-eager"}
    compiled = {"b_framework": "torch", "b_version": "2.15.0", "b_arm": "torch-compile"}
    changes = {"kind": "cross_setting", "verdict": "different", "log_ratio": -0.3, "low": -0.31}
    ratios = row.assign(**eager, **compiled, **changes, high=-0.29)
    page = _without_bundle(_render(replace(frames, ratios=ratios)))
    assert "Which setting is faster?" in page
    assert "PyTorch 2.15.0 compiled is 1.35x (1.34 to 1.36) as fast as PyTorch 2.15.0 eager" in page
    assert "PyTorch 2.15.0 compiled faster" in page
    assert (
        "Nothing counts"
        not in page.partition("<main>")[0].partition("<h1")[2].partition("</h1>")[0]
    )
    assert "Which setting is faster?" not in _render(sample_frames(num_nights=1))


def test_a_convolution_at_a_multiple_of_the_others_time_is_called_an_outlier() -> None:
    frames = sample_frames(num_nights=1)
    row = frames.ratios[frames.ratios["counts"].eq(True)].head(1)
    changes = {"workload": "convolution", "verdict": "different", "log_ratio": 1.2, "low": 1.1}
    ratios = row.assign(**changes, high=1.3)
    assert " an outlier" in _without_bundle(_render(replace(frames, ratios=ratios)))
    assert " an outlier" not in _without_bundle(
        _render(replace(frames, ratios=ratios.assign(workload="resnet50")))
    )


def test_an_older_version_is_named_under_the_headline() -> None:
    frames = sample_frames(num_nights=1)
    note = "JAX 0.10.2: newer 0.12.0.1 needs Python >= 3.12, which was not found"
    page = _render(replace(frames, night=replace(frames.night, notes=(note,))))
    between = page.partition("</h1>")[2].partition("<main>")[0]
    assert between.strip().startswith(f'<p class="note">{note.replace(">", "&gt;")}</p>')


def test_two_modes_of_a_series_are_shown_under_its_history_on_their_device_only() -> None:
    frames = sample_frames(num_nights=1)
    device = frames.ratios["device_fingerprint"].iloc[0]
    row = {"series": "mlp <b>tiny</b>", "words": "two levels", "device_fingerprint": device}
    page = _render(replace(frames, modes=[row]))
    assert '<p class="note">mlp &lt;b&gt;tiny&lt;/b&gt;: two levels</p>' in page
    elsewhere = {**row, "device_fingerprint": "another"}
    assert "two levels" not in _render(replace(frames, modes=[elsewhere]))


def test_the_bottleneck_of_a_step_is_shown_with_advice() -> None:
    frames = sample_frames(num_nights=1)
    changed = frames.bottlenecks.assign(
        bottleneck=["compute", *["undecided"] * (len(frames.bottlenecks) - 1)],
        reason=[f"reason {number}" for number in range(len(frames.bottlenecks))],
    )
    page = _render(replace(frames, bottlenecks=changed))
    assert "What limits the speed of a step?" in page
    assert "compute-bound: a lower precision" in page
    assert "91.3 (20.4)" in page
    assert "reason 1<" in page
    assert "reason 0<" not in page  # the shares beside it show it
