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

from benchcore.cell.channel import Channel
from benchcore.cell.conductor import Conductor
from benchcore.cell.contender import Contender
from benchcore.cell.group import follow_leader
from benchcore.cell.measure.machine_probe import serve_probe
from benchcore.cell.process import die_with_parent
from benchcore.cell.proof.run import ProofRun
from benchcore.protocol import BEAT_S, decode_order, decode_proof_order, write_json


def main(arguments: list[str]) -> int:
    """Run one role: `conductor|proof ORDER RESULT SCRATCH`, `ended ORDER RESULT SCRATCH REASON`, or
    `contender|member|probe READ_FD WRITE_FD`."""
    die_with_parent()
    role, *rest = arguments
    if role in ("conductor", "ended", "proof"):
        threading.Thread(target=_beat, daemon=True).start()
        order_path, result_path, scratch = (Path(argument) for argument in rest[:3])
        document = json.loads(order_path.read_text(encoding="utf-8"))
        scratch.mkdir(parents=True, exist_ok=True)
        if role == "proof":
            result = ProofRun(decode_proof_order(document), scratch).run()
        else:
            conductor = Conductor(decode_order(document), scratch)
            result = conductor.describe_ended(*rest[3:]) if role == "ended" else conductor.run()
        write_json(result_path, result)
        shutil.rmtree(scratch / "caches", ignore_errors=True)
    elif role in ("contender", "member", "probe"):
        channel = Channel(*(int(argument) for argument in rest))
        if role == "contender":
            Contender(channel).serve()
        elif role == "member":
            follow_leader(channel)
        else:
            serve_probe(channel)
    else:
        raise SystemExit(
            f"wanted the role conductor, ended, contender, member, probe or proof, got {role!r}"
        )
    return 0


def _beat() -> None:
    """Report that this process is not stopped, even while it waits for a contender. Past Python's
    buffer, whose lock a thread may not hold when the process ends."""
    with contextlib.suppress(OSError):  # nobody reads any more
        while True:
            time.sleep(BEAT_S)
            os.write(sys.stdout.fileno(), b'{"event": "alive"}\n')


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
