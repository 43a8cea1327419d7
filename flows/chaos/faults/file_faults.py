"""Faults of files: what a crash, a full disk or a person leaves in the state folder."""

from __future__ import annotations

import py_compile
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path

from flows.chaos.faults.fault import Fault
from flows.chaos.night import CAMPAIGN
from flows.chaos.trial import Trial

_HELD_S = 3.0


def _choose(trial: Trial, paths: Iterable[Path]) -> Path:
    return trial.random.choice(sorted(each for each in paths if each.is_file()))


def _cut(path: Path, trial: Trial) -> None:
    """Keep the beginning of a file only, maybe nothing of it."""
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[: trial.random.randrange(len(content))])


def _on_file(pattern: str, harm: Callable[[Path, Trial], None]) -> Callable[[Trial], None]:
    """Harm a random file of this pattern below the state folder."""
    return lambda trial: harm(_choose(trial, trial.state.root.glob(pattern)), trial)


def _cut_bytecode(trial: Trial) -> None:
    """A crash while a conductor stored it: Python checks its first 16 bytes only."""
    source = _choose(trial, trial.state.snapshots.glob("*/benchcore/cell/*.py"))
    _cut(Path(py_compile.compile(str(source), doraise=True) or ""), trial)


def _on_document(harm: Callable[[Path, Trial], None]) -> Callable[[Trial], None]:
    """Harm the first document as soon as it is there."""

    def inject(trial: Trial) -> None:
        found: list[Path] = []
        pattern = f"{CAMPAIGN}/*.json"
        trial.wait_until(lambda: found.extend(trial.state.spool.glob(pattern)) or found)
        harm(found[0], trial)

    return inject


def _empty(path: Path, trial: Trial) -> None:
    path.chmod(0o644)
    path.write_bytes(b"")


def _delete(path: Path, trial: Trial) -> None:
    path.unlink(missing_ok=True)


def _remove_folder(pattern: str) -> Callable[[Trial], None]:
    """Remove a folder of the state folder while the night uses it."""

    def inject(trial: Trial) -> None:
        found: list[Path] = []
        trial.wait_until(lambda: found.extend(trial.state.root.glob(pattern)) or found)
        with suppress(OSError):  # the night writes there
            shutil.rmtree(found[0])

    return inject


def _damage_logs(trial: Trial) -> None:
    """A crash of a node leaves zeros and half lines in a log."""
    with (trial.state.campaigns / CAMPAIGN / "progress.jsonl").open("ab") as log:
        log.write(b"\0" * 100 + b'\n{"event": "ro')


def _damage_plan(trial: Trial) -> None:
    """The fix that the command names is to plan again; the plan was made for all trials."""
    plan = trial.state.campaigns / CAMPAIGN / "plan.json"
    whole = plan.read_bytes()
    trial.until_rerun.callback(lambda: plan.write_bytes(whole))
    _cut(plan, trial)


def _damage_database(trial: Trial) -> None:
    """The fix that the command names is to move the file away; ingest then starts over."""
    path = trial.state.root / "deadheat.db"
    trial.until_rerun.callback(lambda: _move_away(path))
    size = path.stat().st_size
    with path.open("r+b") as stream:
        for start in range(trial.random.choice((0, 4096)), size, 8192):
            stream.seek(start)
            stream.write(trial.random.randbytes(2048))


def _move_away(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        if not each.name.endswith(".lock"):
            each.rename(each.with_name(f"damaged-{each.name}"))


def _hold_database(trial: Trial) -> None:
    """Another program writes to the database for a while."""
    path = trial.state.root / "deadheat.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(_HELD_S)
        other.execute("ROLLBACK")


def _leave_parts(trial: Trial) -> None:
    """What other attempts left when they were killed: half a document, half a scratch folder."""
    folder = trial.state.spool / CAMPAIGN
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0123456789abcdef.json.aa.part").write_text('{"schema": 1, "du')
    scratch = trial.state.campaigns / CAMPAIGN / "duels" / "0123456789abcdef.12345678"
    scratch.mkdir(parents=True)
    (scratch / "result.json").write_text("{")


_FOREIGN = "environments/*/environment.json"
FILE_FAULTS = (
    Fault(name="snapshot: file emptied", prepare=_on_file("snapshots/*/**/*.py", _empty)),
    Fault(name="snapshot: bytecode cut", prepare=_cut_bytecode),
    Fault(name="snapshot: file deleted", prepare=_on_file("snapshots/*/**/*.py", _delete)),
    Fault(name="snapshot: removed in the middle", inject=_remove_folder("snapshots/[!.]*")),
    Fault(name="environment: record cut", prepare=_on_file(_FOREIGN, _cut)),
    Fault(name="environment: record deleted", prepare=_on_file(_FOREIGN, _delete)),
    Fault(
        name="campaign: environment's file cut",
        prepare=_on_file(f"campaigns/{CAMPAIGN}/environments/*.json", _cut),
    ),
    Fault(name="campaign: plan cut", prepare=_damage_plan, layers=("measuring",)),
    Fault(name="campaign: log damaged", inject=_damage_logs),
    Fault(
        name="duel: scratch removed in the middle",
        inject=_remove_folder(f"campaigns/{CAMPAIGN}/duels/*.*"),
    ),
    Fault(name="document: cut", inject=_on_document(_cut)),
    Fault(name="document: emptied", inject=_on_document(_empty)),
    Fault(name="document: deleted", inject=_on_document(_delete)),
    Fault(name="spool: parts of killed attempts", prepare=_leave_parts),
    Fault(name="database: pages overwritten", prepare=_damage_database),
    Fault(name="database: cut", prepare=lambda trial: _damage_by_cutting(trial)),
    Fault(name="database: deleted in the middle", inject=_on_file("deadheat.db", _delete)),
    Fault(name="database: locked for a while", inject=_hold_database),
)


def _damage_by_cutting(trial: Trial) -> None:
    path = trial.state.root / "deadheat.db"
    trial.until_rerun.callback(lambda: _move_away(path))
    _cut(path, trial)
