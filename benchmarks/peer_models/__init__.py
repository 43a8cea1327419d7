"""Others' models as a workload of the cell: `peers.py` copies this folder into a snapshot."""
