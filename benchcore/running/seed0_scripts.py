"""The scripts of `deadheat seed0`: one per framework, which measures a cell of the matrix alone."""

from __future__ import annotations

import sys
from pathlib import Path

from benchcore.errors import UserError
from benchcore.planning.catalog import count_devices
from benchcore.planning.seed0 import Cell
from benchcore.protocol import COMPARED
from benchcore.running.duels import find_accelerator
from benchcore.running.sites import Site, find_pool
from benchcore.running.slurm.batch_script import (
    BatchJob,
    write_batch_script,
    write_local_script,
)


def choose_device(site: Site, pool: str | None) -> str:
    """The first GPU where the site has one for us, else the CPU."""
    wanted = site.accelerator or find_accelerator()
    if site.kind == "slurm" and site.accelerator is None:
        wanted = "cuda" if find_pool(site, pool)[1].gpus else "cpu"
    return "cpu" if wanted == "cpu" else "cuda:0"


def write_scripts(
    cell: Cell, site: Site, pool: str | None, root: str, folder: Path
) -> tuple[Path, ...]:
    """Write `FRAMEWORK_BENCHMARK_USE-CASE.sh` for both frameworks; where they are.

    `root` is the state folder. Raises UserError for a folder that can't be written.
    """
    device = choose_device(site, pool)
    written = list[Path]()
    for framework in COMPARED:
        path = folder / f"{framework}_{cell.name}.sh"
        text = _write_script(cell, framework, device, site, pool, root)
        try:
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        except OSError as error:
            raise UserError(
                f"wanted to write the script {str(path)!r}, but {error}; "
                "choose another folder with --scripts"
            ) from error
        written.append(path)
    return tuple(written)


def _write_script(
    cell: Cell, framework: str, device: str, site: Site, pool: str | None, root: str
) -> str:
    shared = site.state or root
    command = (
        *(sys.executable, "-m", "flows.cli.main", "run", cell.workload, "--case", cell.case),
        *("--contender", framework, "--device", device, "--state", shared),
    )
    if site.kind == "local":
        return write_local_script(shared, command)
    devices = count_devices(cell.workload, cell.case)
    allocation = find_pool(site, pool)[1].with_devices(devices)
    name = f"{framework}_{cell.name}"
    return write_batch_script(
        BatchJob(name=name, allocation=allocation, folder=shared, command=command)
    )
