"""A flow run of ours that sleeps, and prints its id."""

from __future__ import annotations

import sys
import time

from prefect import flow, tags
from prefect.runtime import flow_run


@flow(name="sleeping")
def sleeping() -> None:
    """Until somebody kills it."""
    sys.stdout.write(f"{flow_run.id}\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    with tags("deadheat"):
        sleeping()
