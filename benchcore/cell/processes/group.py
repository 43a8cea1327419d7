"""A contender that uses several devices: one process for each. The conductor knows the first; the
others follow its steps, and live, freeze and end with it, in its process group."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchcore.cell.building import build_program, put_weights
from benchcore.cell.processes.channel import Channel, ChannelClosedError
from benchcore.cell.processes.held_folder import HeldFolder
from benchcore.cell.runtimes.runtime import Place, load_runtime
from benchcore.program import ByName, Program, State, read_arrays
from benchcore.workloads.contract import import_spec


class Group:
    """The other processes of a contender, as its first process leads them.

    The first one sends them a line for each of its steps, so that all run as many steps. This
    costs some 10 microseconds per step, which `torchrun` would not.
    """

    def __init__(self, order: Mapping[str, Any], size: int) -> None:
        self.size = size
        self._held = HeldFolder("deadheat-group-", Path(tempfile.gettempdir()))
        self.folder = self._held.path
        self._port = _reserve_port()
        self._num_files = 0
        self._members = [_start_member() for _ in range(1, size)]
        for rank, member in enumerate(self._members, start=1):
            member.channel.send({"order": dict(order), **dataclasses.asdict(self.place(rank))})

    @property
    def pids(self) -> list[int]:
        """Ids of all processes but the first."""
        return [member.pid for member in self._members]

    def place(self, rank: int) -> Place:
        """The position of a process in the group."""
        host, port = self._port.getsockname()
        met = {"rendezvous": str(self.folder / "rendezvous"), "address": f"{host}:{port}"}
        return Place(rank=rank, size=self.size, **met)

    def lead(self, program: Program) -> Program:
        """The first process's program, whose every collective call the others make, too."""
        num_placed = 0

        def place(inputs: ByName) -> _Placed:
            nonlocal num_placed
            self._send_arrays("place", inputs)
            num_placed += 1
            return _Placed(program.place(inputs), num_placed - 1)

        def step(given: _Placed) -> object:
            self._send({"do": "step", "inputs": given.number})
            return program.step(given.inputs)

        def reset(params: ByName) -> None:
            self._send_arrays("reset", params)
            program.reset(params)

        def state() -> State:
            """Each process holds its part of a state that is sharded."""
            self._send({"do": "state"})
            return program.state()

        def held(given: _Placed) -> Mapping[str, Any]:
            self._send({"do": "held", "inputs": given.number})
            return program.held(given.inputs)

        lower = program.lower
        return dataclasses.replace(
            program,
            place=place,
            step=step,
            reset=reset,
            state=state,
            held=held,
            lower=lower and (lambda given: lower(given.inputs)),
            own_step=lambda given: program.step(given.inputs),
        )

    def end(self) -> None:
        """Let the others end, and remove what was shared with them."""
        for member in self._members:
            member.channel.close()
        self._held.remove()

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


def _reserve_port() -> socket.socket:
    """A free port of loopback. While the socket is bound, no other program is given the port; JAX's
    coordinator may listen there, because both of them share it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


class _Placed(NamedTuple):
    """Inputs on the device, with the number by which all processes know them."""

    inputs: Any
    number: int


@dataclass(frozen=True)
class _Member:
    pid: int
    channel: Channel


def _start_member() -> _Member:
    """Start a member in this process's group, with its variables and its log."""
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
    runtime.try_compiler()
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
        inputs.append(program.place(read_arrays(message["path"])))
    else:
        program.reset(read_arrays(message["path"]))
