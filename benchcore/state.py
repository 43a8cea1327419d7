"""The state folder, where everything that outlives a run is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from benchcore import variables
from benchcore.errors import UserError
from benchcore.protocol import name_part

LONGEST_LOCK_WAIT_S = 1.5 * 3600.0
"""For a lock of the state folder, under which work takes minutes. It ends before a task does, so
that the lock is named. A device and a proof are waited for longer: `running/device_lock.py`."""


@dataclass(frozen=True)
class State:
    """The state folder and its parts as absolute paths; `open_state` checks that it is writable."""

    root: Path

    @property
    def environments(self) -> Path:
        """One folder per environment, content-addressed."""
        return self.root / "environments"

    @property
    def snapshots(self) -> Path:
        """Read-only copies of the measured layer, one folder per hash."""
        return self.root / "snapshots"

    @property
    def campaigns(self) -> Path:
        """Plan, environments, logs and progress of each campaign."""
        return self.root / "campaigns"

    @property
    def spool(self) -> Path:
        """One folder per campaign, with one result document per duel run."""
        return self.root / "spool"

    @property
    def rejected(self) -> Path:
        """Documents that ingest rejected, each next to its reason."""
        return self.spool / "rejected"

    @property
    def proofs(self) -> Path:
        """Documents of equivalence proofs, and the files that computing them needs."""
        return self.root / "proofs"

    @property
    def history(self) -> Path:
        """Suspicions, events and what people did about them, one document each."""
        return self.root / "history"

    @property
    def datasets(self) -> Path:
        """Listings of image folders, arrays of other data sets, and packages with some."""
        return self.root / "datasets"

    @property
    def checkpoints(self) -> Path:
        """Converted weights of checkpoints, one .npz file each."""
        return self.root / "checkpoints"

    @property
    def tuned(self) -> Path:
        """The best settings found for each side, one document each."""
        return self.root / "tuned"

    @property
    def website(self) -> Path:
        """The published dashboard."""
        return self.root / "site"

    def data_docs(self, campaign: str) -> Path:
        """Great Expectations' pages of a campaign's checks: one per suite, and an index."""
        return self.website / campaign / "checks"

    def link_page(self, campaign: str) -> str:
        """The URL of a campaign's own page, which later campaigns do not replace."""
        return self.link(f"{campaign}/index.html")

    def link(self, address: str) -> str:
        """The URL of an address within the dashboard, such as `events.html#event-1`: under
        DEADHEAT_DASHBOARD_URL if it is set, else of the file."""
        served = variables.DASHBOARD_URL.read()
        if served:
            return f"{served.rstrip('/')}/{address}"
        page, mark, anchor = address.partition("#")
        return f"{(self.website / page).absolute().as_uri()}{mark}{anchor}"

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL: DEADHEAT_DATABASE_URL, else SQLite inside the state folder."""
        return variables.DATABASE_URL.read() or f"sqlite:///{self.root / 'deadheat.db'}"


def default_root() -> Path:
    """The default state folder: DEADHEAT_STATE, else `state` in the current folder."""
    return Path(variables.STATE.read() or "state")


def open_state(root: Path) -> State:
    """Create the state folder, for our user alone, and check that it is writable. Raises UserError
    if it is not."""
    root = root.expanduser().absolute()
    state = State(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (
            *(state.environments, state.snapshots, state.campaigns, state.rejected),
            state.proofs,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        probe = name_part(root / ".writable")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"wanted a writable state folder, got {str(root)!r}: {error.strerror or error}; choose "
            "another with --state or DEADHEAT_STATE"
        ) from error
    return state


@contextmanager
def hold_lock(path: Path, *, shared_by_threads: bool = False) -> Iterator[None]:
    """Hold a lock's file while the body runs: other processes wait for it.

    Raises UserError if another one holds it for LONGEST_LOCK_WAIT_S seconds, as one that is stopped
    does: a night must end.
    """
    lock = FileLock(path, timeout=LONGEST_LOCK_WAIT_S, is_singleton=shared_by_threads)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"wanted the lock {str(path)!r}, but another process has held it for "
            f"{LONGEST_LOCK_WAIT_S:g} s; end that process (`fuser {path}` shows its number), and "
            "rerun the same command"
        ) from None
    try:
        yield
    finally:
        lock.release()
