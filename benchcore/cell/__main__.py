"""Entry of the inside ring: `python -P -s -m benchcore.cell conductor|contender ...`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from benchcore.cell.channel import Channel
from benchcore.cell.conductor import Conductor
from benchcore.cell.contender import Contender, die_with_parent
from benchcore.protocol import decode_order, write_json


def main(arguments: list[str]) -> int:
    """Run one role. `conductor ORDER RESULT SCRATCH` or `contender READ_FD WRITE_FD`."""
    die_with_parent()
    role, *rest = arguments
    if role == "conductor":
        order_path, result_path, scratch = (Path(argument) for argument in rest)
        order = decode_order(json.loads(order_path.read_text(encoding="utf-8")))
        scratch.mkdir(parents=True, exist_ok=True)
        write_json(result_path, Conductor(order, scratch).run())
        shutil.rmtree(scratch / "caches", ignore_errors=True)
    elif role == "contender":
        read_fd, write_fd = (int(argument) for argument in rest)
        Contender(Channel(read_fd, write_fd)).serve()
    else:
        raise SystemExit(f"wanted the role conductor or contender, got {role!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
