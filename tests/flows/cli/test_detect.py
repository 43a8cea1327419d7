"""`deadheat detect` on anyone's files: what it answers, and what it refuses."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import benchcore.experiments.user_files
from benchcore.errors import UserError
from benchcore.experiments.measurement_files import read_history
from flows.cli.main import app

VALUES = 0.2 * np.exp(
    0.01 * np.random.default_rng(1).normal(size=60) + 0.08 * np.repeat([0, 1], 30)
)


def _detect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["detect", *map(str, arguments)], catch_exceptions=False)


def _write(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def _rows(values: np.ndarray = VALUES) -> list[str]:
    return ["value", *(f"{value:.9f}" for value in values)]


def test_the_json_of_a_file_has_the_documented_fields(tmp_path: Path) -> None:
    answered = json.loads(_detect(_write(tmp_path, "x.csv", _rows()), "--json").stdout)
    [shift] = answered["shifts"]
    assert list(shift) == ["index", "before", "after", "ratio", "ci"]
    assert shift["index"] == 30
    assert shift["ratio"] == pytest.approx(np.exp(0.08), rel=0.02)
    assert shift["ci"][0] < shift["ratio"] < shift["ci"][1]
    assert answered["suspicions"] == []


def test_an_outlier_in_the_last_night_is_listed_separately(tmp_path: Path) -> None:
    spiked = VALUES.copy()
    spiked[-1] *= 1.3
    answered = json.loads(_detect(_write(tmp_path, "x.csv", _rows(spiked)), "--json").stdout)
    assert [shift["index"] for shift in answered["shifts"]] == [30]
    assert [each["index"] for each in answered["suspicions"]] == [59]


def test_empty_cells_and_times_mean_missing_nights(tmp_path: Path) -> None:
    rows = _rows()
    rows[11] = rows[29] = ""
    [shift] = json.loads(_detect(_write(tmp_path, "x.csv", rows), "--json").stdout)["shifts"]
    assert shift["index"] == 30
    days = [date(2026, 1, 30) + timedelta(days=2 * number) for number in range(60)]
    for form in ("%Y-%m-%d", "%Y%m%d", "%Y-%m-%dT02:00:00+01:00"):
        lines = [f"{d.strftime(form)},x,{v}" for d, v in zip(days, VALUES, strict=True)]
        path = _write(tmp_path, "dated.csv", ["time,node, value", *lines])
        assert np.diff(read_history(path).nights) == pytest.approx([2.0] * 59)  # type: ignore[arg-type]
        assert json.loads(_detect(path, "--json").stdout)["shifts"][0]["index"] == 30


def test_runs_around_midnight_belong_to_one_night(
    tmp_path: Path,
) -> None:
    begun = datetime(2026, 1, 1)
    late = np.random.default_rng(1).integers(-900, 900, 60).tolist()
    times = [begun + timedelta(days=n, seconds=s) for n, s in enumerate(late)]
    assert len({time.date() for time in times}) < 60
    lines = [f"{time},{v}" for time, v in zip(times, VALUES, strict=True)]
    path = _write(tmp_path, "x.csv", ["time,value", *lines, "", ""])
    assert json.loads(_detect(path, "--json").stdout)["shifts"][0]["index"] == 30


def test_a_folder_is_answered_by_file_name_despite_broken_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, "fine.csv", _rows())
    _write(tmp_path, "$(id) 'x'.csv", _rows())
    _write(tmp_path, "broken.csv", ["value", "fast"])
    done = _detect(tmp_path, "--json")
    answered = json.loads(done.stdout)
    assert done.exit_code == 2
    assert answered["fine.csv"] == answered["$(id) 'x'.csv"]
    assert "got 'fast' in row 0" in answered["broken.csv"]["error"]
    monkeypatch.setattr(benchcore.experiments.user_files, "_ENOUGH_TO_SHARE", 1)
    assert json.loads(_detect(tmp_path, "--json").stdout) == answered  # in several processes


def test_the_text_output_shows_what_changed(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.csv", _rows())
    [shift] = json.loads(_detect(path, "--json").stdout)["shifts"]
    assert f"{shift['ci'][0]:.4f} to {shift['ci'][1]:.4f}" in _detect(path).stdout
    assert "no shift" in _detect(_write(tmp_path, "x.csv", _rows(VALUES[:30]))).stdout
    assert "unknown" in _detect(_write(tmp_path, "x.csv", ["value", "0.1"])).stdout
    drifting = _rows(VALUES[:30].repeat(3) * np.linspace(1, 1.5, 90))
    assert "drift: " in _detect(_write(tmp_path, "x.csv", drifting)).stdout


def test_values_around_zero_are_compared_on_a_linear_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(0, 0.1, 60) + 1.0 * (np.arange(60) >= 40)
    path = _write(tmp_path, "x.csv", _rows(values))
    answered = json.loads(_detect(path, "--json").stdout)
    [shift] = answered["shifts"]
    assert answered["scale"] == "linear" and "ratio" not in shift
    assert abs(shift["index"] - 40) <= 1
    assert shift["ci"][0] < shift["difference"] < shift["ci"][1]
    assert shift["difference"] == pytest.approx(1.0, abs=0.1)
    assert shift["after"] - shift["before"] == pytest.approx(shift["difference"])
    assert "changes are differences" in _detect(path).stdout
    flipped = json.loads(_detect(_write(tmp_path, "x.csv", _rows(-values)), "--json").stdout)
    assert flipped["shifts"][0]["difference"] == pytest.approx(-shift["difference"])


def test_several_runs_of_a_night_count_by_their_median(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    lines = ["time,value"]
    for night in range(60):
        day = np.datetime64("2026-01-01") + night
        runs = rng.normal(1.0, 0.005, 3) + 0.05 * (night >= 40)
        runs[0] *= 1.5 if night % 7 == 0 else 1.0  # one disturbed run of a night is outvoted
        lines += [f"{day}T0{hour}:00,{run}" for hour, run in enumerate(runs)]
    path = _write(tmp_path, "x.csv", lines)
    answered = json.loads(_detect(path, "--json").stdout)
    assert answered["nights with several runs"] == 60
    [shift] = answered["shifts"]
    assert abs(shift["index"] - 3 * 40) <= 3  # the row of the file, not the night
    assert answered["suspicions"] == []
    assert "60 nights have several runs" in _detect(path).stdout


@pytest.mark.parametrize("lines", [["value"], ["value", "0.25"], ["value"] + ["0.25"] * 40])
def test_too_little_is_unknown(lines: list[str], tmp_path: Path) -> None:
    answered = json.loads(_detect(_write(tmp_path, "x.csv", lines), "--json").stdout)
    assert answered["shifts"] == [] and answered["unknown"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([""], "names one column value, got ''"),
        (["0.1", "0.2"], "names one column value, got '0.1'"),
        (["value,value", "1,2"], "names one column value"),
        (["value", "nan"], "got 'nan' in row 0"),
        (["value", "0.1", "inf"], "got 'inf' in row 1"),
        (["value", "1_0"], "finite numbers, got '1_0'"),
        (["value", "<script>" * 99], "finite numbers, got '<script>"),
        (["time,value", "2026-01-02,1", "2026-01-01,2"], "nights in order"),
        (["time,value", "2,1", "nan,2"], "nights in order"),
        (["time,value", "someday,1"], "such as 2026-11-22"),
        (["value", '"0.1'], "wanted CSV"),
        (["value,note", "1," + "x" * 200_000], "wanted CSV"),
    ],
)
def test_a_file_that_is_not_a_history_is_refused(
    lines: list[str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        read_history(_write(tmp_path, "x.csv", lines))
    assert words in str(refused.value)
    assert len(str(refused.value)) < 500
