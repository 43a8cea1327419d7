"""The words that pages explain on hover; the whole glossary is in `benchcore/README.md`."""

from __future__ import annotations

GLOSSARY = {
    "speedup": "Time of a PyTorch step divided by time of a JAX step, from paired blocks. "
    "Above 1x, JAX is faster.",
    "interval": "95 % interval over fresh starts or over compilations, whichever is wider.",
    "verdict": "same: within the bound of equal speed. different: the interval excludes 1x. "
    "unknown: neither is shown, with the reason.",
    "fair pair": "Both sides used the same settings, as read back from the frameworks.",
    "starts": "Fresh processes of all contenders of a duel. A start is one sample.",
    "arm": "A framework and its settings, without the version.",
    "suspicion": "A change in a history that was not measured again yet.",
    "event": "A change that fresh measurements of old and new environments confirmed.",
    "void": "Failed a check, so it takes no part in any statement.",
    "geometric mean": "Of the speedups of a fixed set of cases: those that count in both nights.",
    "degraded": "Blocks that other processes disturbed. They take no part in times and ratios.",
    "certificate": "What a release did to a case: better, worse, unchanged within the bound, or "
    "not shown.",
    "condition": "What a night ran under: driver, libraries, kernel, node, measuring method.",
    "track": "default: settings of a user who does nothing. tuned: the best of each side.",
    "method": "Number of the measuring method. A new number ends every series.",
    "control": "An older version of the same framework, measured in the same duel. What the "
    "machine does cancels out.",
}
