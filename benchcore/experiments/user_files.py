"""What users' own files of timings show: paired timings are judged, histories searched for shifts.

What was found is JSON: a dictionary per file, under the file's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchcore.cell.measure.host import usable_cpus
from benchcore.errors import UserError
from benchcore.experiments.measurement_files import list_files, read_allocations, read_history
from benchcore.verdict.allocations import judge_allocations, locate
from benchcore.verdict.history.detect import Detection, detect_shifts
from benchcore.verdict.history.linear import detect_linear_shifts
from benchcore.verdict.history.modes import describe_modes
from benchcore.verdict.moderation import fit_spread
from benchcore.verdict.samples import SpreadPrior

Findings = dict[str, dict[str, Any]]
_ENOUGH_TO_SHARE = 500
"""Files; fewer are processed before another process has started."""


def judge_files(path: Path, bound: float) -> Findings:
    """Judge a file of paired timings, or each `.json` file of a folder.

    The cases of a folder are of one machine: their spreads inform each other, except those on a
    linear scale. A change below `bound` counts as the same, on a linear scale below this share of
    the median size. In a folder, a file that can't be read has its `error` instead;
    raises UserError for a single one.
    """
    prior = _learn_spread(path) if path.is_dir() else None
    return _process_files(path, ".json", partial(_judge_file, bound, prior))


def search_files(path: Path, smallest: float) -> Findings:
    """Search a nightly history, or each `.csv` file of a folder, for shifts of at least the share
    `smallest`.

    The finding `unknown` is why a history can't be searched. Errors are as in `judge_files`.
    """
    return _process_files(path, ".csv", partial(_search_file, smallest))


def _learn_spread(folder: Path) -> SpreadPrior | None:
    """What the cases of a folder show about their machine; files that can't be read show nothing,
    and are reported when they are judged."""
    cases: list[np.ndarray] = []
    for file in list_files(folder, ".json"):
        with suppress(UserError):
            read = read_allocations(file)
            allocations = [pairs for pairs in read.pairs if len(pairs)]
            cases += [locate(allocations)] if len(allocations) > 1 and not read.unit else []
    return fit_spread(cases)


def _judge_file(bound: float, prior: SpreadPrior | None, file: Path) -> dict[str, Any]:
    read = read_allocations(file)
    unit = read.unit or 1.0
    found = judge_allocations(read.pairs, bound, prior=None if read.unit else prior)
    middle, *ci = (
        None if each is None else unit * each for each in (found.log_ratio, found.low, found.high)
    )
    change = "difference" if read.unit else "log_ratio"
    shown = {"verdict": found.verdict, change: middle, "ci": ci if ci[0] is not None else None}
    shown["p"] = found.p
    if read.unit:
        shown["scale"] = "linear"
    return {**shown, "reason": found.reason} if found.verdict == "unknown" else shown


def _search_file(smallest: float, file: Path) -> dict[str, Any]:
    history = read_history(file)
    linear = bool(np.any(history.values <= 0))
    detect_changes = detect_linear_shifts if linear else detect_shifts
    found = detect_changes(history.values, history.nights, smallest)
    change = "difference" if linear else "ratio"
    shown: dict[str, Any] = {
        "shifts": [
            {
                "index": int(history.rows[shift.index]),
                "before": shift.before,
                "after": shift.after,
                change: getattr(shift, change),
                "ci": [shift.low, shift.high],
            }
            for shift in found.shifts
        ],
        "suspicions": [
            {
                "index": int(history.rows[each.index]),
                change: getattr(each, change),
                "reason": each.reason,
            }
            for each in found.edges
        ],
    }
    if history.num_repeated:
        shown["nights with several runs"] = history.num_repeated
    if found.drift is not None:
        shown["drift"] = found.drift
    if isinstance(found, Detection) and found.modes is not None:
        more = {"ratio": found.modes.ratio, "summary": describe_modes(found.modes)}
        shown["modes"] = {**dataclasses.asdict(found.modes), **more}
    if linear:
        shown["scale"] = "linear"
    return {**shown, "unknown": found.unknown} if found.unknown else shown


def _process_files(path: Path, ending: str, process: Callable[[Path], dict[str, Any]]) -> Findings:
    """Many files are processed side by side, so `process` must be picklable."""
    if not path.is_dir():
        return {path.name: process(path)}
    files = list_files(path, ending)
    names = [file.name for file in files]
    cpus = usable_cpus()
    if len(files) < _ENOUGH_TO_SHARE or cpus == 1:
        return dict(zip(names, map(partial(_try, process), files), strict=True))
    with ProcessPoolExecutor(cpus, mp_context=get_context("spawn")) as pool:
        found = pool.map(partial(_try, process), files, chunksize=100)
        return dict(zip(names, found, strict=True))


def _try(process: Callable[[Path], dict[str, Any]], file: Path) -> dict[str, Any]:
    try:
        return process(file)
    except UserError as error:
        return {"error": str(error)}
