"""How long a task may run that does not measure."""

LIMIT_S = 7200.0
"""A night must end, even if a disk, a lock or a server hangs. Builds, duels, proofs and updates of
W&B have limits of their own; a round ends with the tasks within it."""
