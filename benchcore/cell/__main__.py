"""Entry of the measured layer: `python -P -s -m benchcore.cell ROLE ...`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

from benchcore.cell.processes.channel import Channel
from benchcore.cell.processes.escaped import adopt_orphans
from benchcore.cell.processes.lifetime import die_with_parent, end_at_once


def main(arguments: list[str]) -> int:
    """Run one role: `conductor|proof ORDER RESULT SCRATCH`, `ended ORDER RESULT SCRATCH REASON`, or
    `contender|member|probe READ_FD WRITE_FD`. Each imports only its own part: many are started."""
    die_with_parent()
    role, *rest = arguments
    if role in ("conductor", "ended", "proof"):
        _write_document(role, rest)
    elif role in ("contender", "member", "probe"):
        _serve(role, Channel(*(int(argument) for argument in rest)))
    else:
        raise SystemExit(
            f"wanted the role conductor, ended, contender, member, probe or proof, got {role!r}"
        )
    return 0


def _serve(role: str, channel: Channel) -> None:
    if role == "contender":
        from benchcore.cell.contender import ContenderServer

        ContenderServer(channel).serve()
    elif role == "member":
        from benchcore.cell.processes.group import follow_leader

        follow_leader(channel)
    else:
        from benchcore.cell.measure.machine_probe import serve_probe

        serve_probe(channel)


def _write_document(role: str, arguments: list[str]) -> None:
    from benchcore.cell.conductor import Conductor
    from benchcore.cell.processes.bytecode import store_bytecode
    from benchcore.protocol import BEAT_S, decode_order, decode_proof_order, write_json

    threading.Thread(target=_beat, args=(BEAT_S,), daemon=True).start()
    order_path, result_path, scratch = (Path(argument) for argument in arguments[:3])
    document = json.loads(order_path.read_text(encoding="utf-8"))
    scratch.mkdir(parents=True, exist_ok=True)
    adopt_orphans()
    store_bytecode(document["workload"])
    if role == "proof":
        from benchcore.cell.proof.run import ProofRun

        result = ProofRun(decode_proof_order(document), scratch).run()
    else:
        conductor = Conductor(decode_order(document), scratch)
        result = conductor.describe_ended(*arguments[3:]) if role == "ended" else conductor.run()
    write_json(result_path, result)
    shutil.rmtree(scratch / "caches", ignore_errors=True)


def _beat(pause_s: float) -> None:
    """Report that this process is not stopped, even while it waits for a contender. Past Python's
    buffer, whose lock a thread may not hold when the process ends."""
    with contextlib.suppress(OSError):  # nobody reads any more
        while True:
            time.sleep(pause_s)
            os.write(sys.stdout.fileno(), b'{"event": "alive"}\n')


if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
