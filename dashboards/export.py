"""Files for others: tables as CSV, JSON, Parquet, LaTeX or Markdown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchcore.errors import UserError
from benchcore.names import name_arm, name_case_in_words, name_model
from benchcore.planning.catalog import measure_models
from benchcore.protocol import name_part
from benchcore.store.copies.parquet import import_parquet
from dashboards.formatting import is_missing
from dashboards.website.names import order_words

_FORMULA = ("=", "+", "-", "@", "\t", "\r")

Tables = Mapping[str, pd.DataFrame]


def write_tables(
    folder: Path, tables: Tables, formats: Iterable[str], about: Mapping[str, Any]
) -> list[Path]:
    """Write each table in each format, with LaTeX its figures, and `export.json`, which names the
    files with their rows and hashes and holds `about`. Raises UserError for a format that is not
    known or not installed."""
    chosen = {name: _find_writer(name) for name in formats}
    folder.mkdir(parents=True, exist_ok=True)
    written = list[tuple[Path, int]]()
    for ending, write in chosen.items():
        for name, frame in _list_files(ending, tables).items():
            path = folder / f"{name}.{_ENDINGS[ending]}"
            replace_file(path, write(frame))
            written.append((path, len(frame)))
    if "latex" in chosen:
        from dashboards.figures.paper_figures import draw_figures  # Altair takes half a second

        for name, drawn in draw_figures(tables["measurements"]).items():
            replace_file(folder / f"{name}.pdf", drawn.pdf)
            written.append((folder / f"{name}.pdf", drawn.rows))
    files = [
        {"file": path.name, "rows": rows, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path, rows in written
    ]
    manifest = json.dumps({**about, "files": files}, indent=1, default=str) + "\n"
    replace_file(folder / "export.json", manifest.encode())
    return [*(path for path, _ in written), folder / "export.json"]


def _find_writer(name: str) -> Callable[[pd.DataFrame], bytes]:
    if name not in _WRITERS:
        raise UserError(f"no format {name!r}; choose from {', '.join(_WRITERS)}")
    if name == "parquet":
        import_parquet()
    return _WRITERS[name]


def _list_files(ending: str, tables: Tables) -> dict[str, pd.DataFrame]:
    if ending == "markdown":
        return {"summary": list_newest(tables["ratios"])}
    if ending != "latex":
        return dict(tables)
    from dashboards.figures.paper_figures import METRICS  # as above

    measured = tables["measurements"]
    found = {name: pivot_metric(measured, *each) for name, each in METRICS.items()}
    found["models"] = tabulate_models()
    return {name: frame for name, frame in found.items() if len(frame)}


def tabulate_models() -> pd.DataFrame:
    """Parameters and work of the models that a checkpoint of torchvision fits."""
    rows = {
        name_model(workload): {
            "Parameters in millions": size.parameters / 1e6,
            "GFLOP per image, inference": size.infer_flops / 1e9,
            "GFLOP per image, training": size.train_flops / 1e9,
        }
        for workload, size in measure_models().items()
    }
    frame = pd.DataFrame.from_dict(rows, orient="index")
    frame.attrs["caption"] = (
        "Models at 224 x 224 pixels. A multiplication with its addition is two FLOP; only matrix "
        "products and convolutions are counted."
    )
    return frame


def replace_file(path: Path, content: bytes) -> None:
    """Write the file as a whole."""
    part = name_part(path)
    part.write_bytes(content)
    part.replace(path)


def write_csv(frame: pd.DataFrame) -> bytes:
    """CSV with a header. A text that a spreadsheet would run as a formula begins with '."""
    return frame.map(escape_formula).to_csv(index=False, lineterminator="\r\n").encode()


def escape_formula(value: Any) -> Any:
    """The value; a text that a spreadsheet would run as a formula begins with '."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def write_json(frame: pd.DataFrame) -> bytes:
    """A list of rows; null where a number was not measured."""
    rows = [
        {str(key): None if is_missing(value) else value for key, value in row.items()}
        for row in frame.astype(object).to_dict("records")
    ]
    return (json.dumps(rows, indent=1, default=str, allow_nan=False) + "\n").encode()


def _write_parquet(frame: pd.DataFrame) -> bytes:
    return frame.to_parquet(None, index=False, engine="pyarrow")


def pivot_metric(measured: pd.DataFrame, metric: str, caption: str, factor: float) -> pd.DataFrame:
    """The newest value of each case (rows) and arm of the newest versions (columns)."""
    found: dict[str, dict[str, float]] = {}
    for row in measured.sort_values("started_at", kind="stable").to_dict("records"):
        if not is_missing(row[metric]):
            case = f"{name_case_in_words(row)}, {row['device_model']}"
            arm = f"{name_arm(row['framework'], row['arm'])} {row['version']}"
            found.setdefault(case, {})[arm] = float(row[metric]) * factor
    frame = pd.DataFrame.from_dict(
        {case: found[case] for case in sorted(found, key=order_words)}, orient="index"
    )
    frame.attrs["caption"] = caption
    return frame.reindex(columns=sorted(frame.columns))


def _write_latex(frame: pd.DataFrame) -> bytes:
    """A table for LaTeX with booktabs; what was not measured is a dash."""
    shown = frame.map(lambda value: "--" if is_missing(value) else f"{value:.4g}")
    lines = [_latex_row(["", *shown.columns]), r"\midrule"]
    lines += [_latex_row([str(case), *row]) for case, row in shown.T.items()]
    body = "\n".join(lines)
    spec = "l" + "r" * len(shown.columns)
    return (
        f"\\begin{{table}}\n\\caption{{{_escape(frame.attrs['caption'])}}}\n"
        f"\\begin{{tabular}}{{{spec}}}\n\\toprule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    ).encode()


def list_newest(ratios: pd.DataFrame) -> pd.DataFrame:
    """The newest ratio of each case and pair of arms on a device, in words."""
    newest = dict[tuple[str, ...], list[str]]()
    for row in ratios.sort_values("started_at", kind="stable").to_dict("records"):
        sides = [
            f"{name_arm(row[f'{s}_framework'], row[f'{s}_arm'])} {row[f'{s}_version']}"
            for s in "ab"
        ]
        key = (
            name_case_in_words(row),
            row["device_model"],
            row["track"],
            row["a_arm"],
            row["b_arm"],
            row["kind"],
        )
        factor = f"{row['speedup']:.3g}x ({row['low']:.3g} to {row['high']:.3g})"
        newest[key] = [*key[:2], *sides, factor, str(row["verdict"]), str(row["started_at"])[:10]]
    columns = ["Case", "Device", "A", "B", "Speedup of A over B (95 %)", "Verdict", "Measured"]
    ordered = sorted(newest.values(), key=lambda row: order_words(row[0]))
    return pd.DataFrame(ordered, columns=columns)


def write_markdown(frame: pd.DataFrame) -> bytes:
    """A table whose cells are text: no link, code or HTML."""
    rows = [list(frame.columns), ["---"] * len(frame.columns)]
    rows += [[_as_markdown(str(cell)) for cell in row] for row in frame.itertuples(index=False)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows).encode()


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_escape(str(each)) for each in cells) + r" \\"


def _escape(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {each: f"\\{each}" for each in "&%$#_{}"}
    return "".join(special.get(each, each) for each in text)


_WRITERS: Mapping[str, Callable[[pd.DataFrame], bytes]] = {
    "csv": write_csv,
    "json": write_json,
    "parquet": _write_parquet,
    "latex": _write_latex,
    "markdown": write_markdown,
}
_ENDINGS = {"csv": "csv", "json": "json", "parquet": "parquet", "latex": "tex", "markdown": "md"}


def _as_markdown(line: str) -> str:
    """A value as plain text in Markdown: no link, code or HTML."""
    return "".join(f"\\{each}" if each in "\\`*_[]<>|" else each for each in line)
