"""Where everything that outlives a run is kept: one state folder, its parts named here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchcore import variables
from benchcore.errors import UserError
from benchcore.protocol import name_part


@dataclass(frozen=True)
class State:
    """The state folder. Paths are absolute; `open_state` makes sure that they can be written."""

    root: Path

    @property
    def environments(self) -> Path:
        """One folder an environment, content-addressed."""
        return self.root / "environments"

    @property
    def snapshots(self) -> Path:
        """Read-only copies of the inside ring, one folder a hash."""
        return self.root / "snapshots"

    @property
    def campaigns(self) -> Path:
        """Plan, environments, logs and progress of each campaign."""
        return self.root / "campaigns"

    @property
    def spool(self) -> Path:
        """One result document a duel run, in one folder a campaign."""
        return self.root / "spool"

    @property
    def rejected(self) -> Path:
        """Documents that ingest refused, each beside its reason."""
        return self.spool / "rejected"

    @property
    def proofs(self) -> Path:
        """Documents of the equivalence pass, and what its running needs."""
        return self.root / "proofs"

    @property
    def datasets(self) -> Path:
        """What is known of image folders: one listing each."""
        return self.root / "datasets"

    @property
    def checkpoints(self) -> Path:
        """Weights of checkpoints, converted: an .npz each."""
        return self.root / "checkpoints"

    @property
    def site(self) -> Path:
        """The published dashboard."""
        return self.root / "site"

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL: DEADHEAT_DATABASE_URL, else SQLite inside the state folder."""
        return variables.DATABASE_URL.read() or f"sqlite:///{self.root / 'deadheat.db'}"


def default_root() -> Path:
    """The state folder where nobody names one: DEADHEAT_STATE, else `state` in this folder."""
    return Path(variables.STATE.read() or "state")


def open_state(root: Path) -> State:
    """Make the state folder and prove that it can be written. Raises UserError if it can't."""
    root = root.expanduser().absolute()
    state = State(root)
    try:
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
            f"wanted a state folder that can be written, got {str(root)!r}, where "
            f"{error.strerror or error} happened; name another with --state or DEADHEAT_STATE"
        ) from error
    return state
