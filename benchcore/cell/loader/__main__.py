"""Entry of the loader's server: `python -P -s -m benchcore.cell.loader ORDER FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchcore.cell.loader.server import LoaderServer
from benchcore.cell.processes.lifetime import die_with_parent
from benchcore.protocol import decode_order


def main(arguments: list[str]) -> int:
    """Serve the dataset of a duel order until killed; prints `ready` once the socket listens."""
    die_with_parent()
    order_path, folder = (Path(argument) for argument in arguments)
    order = decode_order(json.loads(order_path.read_text(encoding="utf-8")))
    assert order.dataset is not None, "only an order with a dataset starts a loader"
    server = LoaderServer(order.dataset, folder)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
