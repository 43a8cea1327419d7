"""A contender that uses several devices: one process for each. The conductor knows the first; the
others follow its steps, and live, freeze and end with it, in its process group."""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcore.cell.building import build_program, put_weights
from benchcore.cell.channel import Channel, ChannelClosedError
from benchcore.cell.runtime import Place, load_runtime
from benchcore.program import ByName, Program, State
from benchcore.workloads.contract import import_spec


class Group:
    """The other processes of a contender, as its first process leads them.

    The first one sends them a line for each of its steps, so that all run as many steps. This
    costs some 10 microseconds per step, which `torchrun` would not.
    """

    def __init__(self, order: Mapping[str, Any], size: int) -> None:
        self.size = size
        self.folder = Path(tempfile.mkdtemp(prefix="group-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self._num_files = 0
        self._members = [_start_member() for _ in range(1, size)]
        for rank, member in enumerate(self._members, start=1):
            member.channel.send({"order": dict(order), **dataclasses.asdict(self.place(rank))})

    @property
    def pids(self) -> list[int]:
        """Of all processes but the first."""
        return [member.pid for member in self._members]

    def place(self, rank: int) -> Place:
        """Where a process of the group stands in it."""
        return Place(rank=rank, size=self.size, rendezvous=str(self.folder / "rendezvous"))

    def lead(self, program: Program) -> Program:
        """The first process's program, whose every collective call the others make, too."""
        num_placed = 0

        def place(inputs: ByName) -> tuple[Any, ...]:
            nonlocal num_placed
            self._send_arrays("place", inputs)
            placed = _Numbered(program.place(inputs))
            placed.number, num_placed = num_placed, num_placed + 1
            return placed

        def step(inputs: Any) -> object:
            self._send({"do": "step", "inputs": inputs.number})
            return program.step(inputs)

        def reset(params: ByName) -> None:
            self._send_arrays("reset", params)
            program.reset(params)

        def state() -> State:
            """Each process holds its part of a state that is sharded."""
            self._send({"do": "state"})
            return program.state()

        def held(inputs: Any) -> Mapping[str, Any]:
            self._send({"do": "held", "inputs": inputs.number})
            return program.held(inputs)

        return dataclasses.replace(
            program, place=place, step=step, reset=reset, state=state, held=held
        )

    def _send_arrays(self, what: str, arrays: ByName) -> None:
        import numpy as np

        path = self.folder / f"{self._num_files}.npz"
        self._num_files += 1
        np.savez(path, **arrays)  # type: ignore[arg-type] # its own stubs are wrong
        self._send({"do": what, "path": str(path)})

    def _send(self, message: dict[str, Any]) -> None:
        for rank, member in enumerate(self._members, start=1):
            try:
                member.channel.send(message)
            except ChannelClosedError as error:  # which would look as if the conductor had ended
                raise RuntimeError(f"process {rank} of the group of {self.size} ended") from error


class _Numbered(tuple[Any, ...]):
    """Inputs on the device, with the number by which all processes know them."""

    number: int


@dataclass(frozen=True)
class _Member:
    pid: int
    channel: Channel


def _start_member() -> _Member:
    """In this process's group, with its variables and its log."""
    orders_in, orders_out = os.pipe()
    answers_in, answers_out = os.pipe()
    command = [sys.executable, "-P", "-s", "-m", "benchcore.cell", "member"]
    process = subprocess.Popen(
        [*command, str(orders_in), str(answers_out)], pass_fds=(orders_in, answers_out)
    )
    os.close(orders_in)
    os.close(answers_out)
    return _Member(process.pid, Channel(answers_in, orders_out))


def follow_leader(channel: Channel) -> None:
    """Be a member: build the same program, and do what the first process does until it ends."""
    first = channel.receive()
    order, place = first["order"], Place(**{key: first[key] for key in Place.__annotations__})
    runtime = load_runtime(order["framework"])
    runtime.import_framework()
    spec = import_spec(order["workload"])
    case = spec.cases[order["case"]]
    runtime.initialise(
        device=order["device"],
        precision=order.get("precision") or case.precision,
        threads=order["threads"],
        settings=order["settings"],
        place=place,
    )
    arrays = put_weights(spec.make_arrays(case, order["seed"]), order["checkpoint"])
    program = build_program(order, case, arrays)
    inputs: list[Any] = []
    try:
        while True:
            _follow(program, channel.receive(), inputs)
    except ChannelClosedError:
        return


def _follow(program: Program, message: Mapping[str, Any], inputs: list[Any]) -> None:
    if message["do"] == "step":
        program.step(inputs[message["inputs"]])
    elif message["do"] == "state":
        program.state()
    elif message["do"] == "held":
        program.held(inputs[message["inputs"]])
    elif message["do"] == "place":
        inputs.append(program.place(_load(message["path"])))
    else:
        program.reset(_load(message["path"]))


def _load(path: str) -> dict[str, Any]:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
