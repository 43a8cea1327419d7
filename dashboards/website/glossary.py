"""The terms, checks and parts of a number that pages explain."""

from __future__ import annotations

from dataclasses import dataclass

GLOSSARY = {
    "arm": "A framework and its settings, without the version.",
    "baseline": "The level that people accepted when they triaged an event.",
    "block": "The timed steps of one contender in its turn.",
    "break-even": "Steps after which the faster side has made up for compiling longer.",
    "bridge": "What a lasting new condition moved between two environments that stayed the same.",
    "calibration run": "Starts whose truth is known: nothing was changed, or one side was slowed "
    "down. They measure how often our own verdicts are wrong.",
    "campaign": "The duels of one night, one release or one request, with one plan.",
    "case": "A workload with everything fixed that changes the work: use case, batch, precision.",
    "ceiling": "The highest rate that the device reached on a plain matrix product or copy. A step "
    "beyond it is impossible.",
    "certificate": "What a release did to a case: better, worse, unchanged within the bound, or "
    "not shown.",
    "condition": "What a night ran under: driver, libraries, kernel, node, measuring method.",
    "contender": "An arm in an environment: one framework at one version with its settings.",
    "control": "An older version of the same framework, measured in the same duel. What the "
    "machine does cancels out.",
    "degraded": "Blocks that other processes disturbed. They take no part in times and ratios.",
    "drift": "Small changes that add up since an older night, although no single night shows one.",
    "duel": "One case and its contenders, interleaved in one allocation.",
    "event": "A change that fresh measurements of old and new environments confirmed.",
    "fair pair": "Both sides used the same settings, as read back from the frameworks.",
    "geometric mean": "Of the speedups of a fixed set of cases: those that count in both nights.",
    "interval": "95 % interval over fresh starts or over compilations, whichever is wider.",
    "method": "Number of the measuring method. A series continues across a new number only over a "
    "bridge.",
    "series": "One ratio of one metric over nights: case, two arms, device.",
    "speedup": "How many times as fast the first side is as the second, from paired blocks. In "
    "pairs of frameworks JAX is first.",
    "starts": "Fresh processes of all contenders of a duel. A start is one sample.",
    "suspicion": "A change that a history suggests. It must be confirmed by measuring again.",
    "track": "default: a user's default settings. tuned: the best settings of each side.",
    "verdict": "same: within the bound of equal speed. different: the interval excludes 1x. "
    "unknown: neither is shown, with the reason.",
    "void": "Failed a check, so it does not count.",
    "workload": "Work that both frameworks can do, such as ResNet-50.",
}

READING = (
    (
        "1.42x (1.38 to 1.47)",
        "JAX takes 1/1.42 of PyTorch's time. In brackets: the 95 % interval. "
        "Below 1x, PyTorch is faster: 0.80x means that JAX takes 1.25 times as long.",
    ),
    (
        "What one sample is",
        "A start: fresh processes of both sides. Blocks and rounds within a start "
        "make a start's ratio more precise; they are not samples.",
    ),
    ("different", "The interval excludes 1x. One start gives no verdict: run more starts."),
    (
        "same",
        "The interval lies within the bound of equal speed, so a larger difference is excluded.",
    ),
    ("unknown", "Neither is shown. It does not mean equal speed; more starts narrow the interval."),
    (
        "void",
        "The pair failed a check below. Its times are on the duel's page, its ratio is not.",
    ),
    (
        "Compare with",
        "The same case on the same device only. The geometric mean of a night is over "
        "the cases that count in both nights.",
    ),
)
"""What each part of a number means."""

CHECKS = (
    (
        "Both finished",
        "Did both sides finish every start?",
        "Crash, out of memory, timeout: a status with its traceback, never a missing row.",
        ("Health: void pairs", "health.html#void-causes"),
    ),
    (
        "Same settings",
        "Do both sides read back the same precision, layout and compilation?",
        "The pair is not fair, or void where the case demands the setting.",
        ("Glossary: fair pair", "glossary.html#fair-pair"),
    ),
    (
        "Same results",
        "Do the timed steps of both sides agree within the workload's tolerance, before "
        "and after the blocks?",
        "Outputs, gradients or updates differ: the pair is void.",
        ("Health: failed checks", "health.html#checks"),
    ),
    (
        "The proven step is the timed one",
        "Was the evidence made from the callable that is timed, and does its state move on?",
        "A side that returns stored results or does other work is void.",
        ("Health: failed checks", "health.html#checks"),
    ),
    (
        "Nothing compiled on the clock",
        "Did a compilation fall into a timed block?",
        "The pair is void.",
        ("Health: failed checks", "health.html#checks"),
    ),
    (
        "Possible on this device",
        "Is the step no faster than the device's ceilings of that night or the 30 days before?",
        "invalid_physics; without a ceiling no pair counts.",
        ("Glossary: ceiling", "glossary.html#ceiling"),
    ),
    (
        "Undisturbed",
        "Did other processes use the machine?",
        "Degraded blocks are left out. If a pair has no undisturbed round, a rerun measures its "
        "duel again.",
        ("Glossary: degraded", "glossary.html#degraded"),
    ),
    (
        "Enough starts",
        "Is the interval narrow, over several starts?",
        "unknown, with the reason.",
        ("Glossary: verdict", "glossary.html#verdict"),
    ),
    (
        "A change is measured again",
        "Do fresh starts of old and new environments show it, too?",
        "It stays a suspicion, without a culprit.",
        ("Events", "events.html"),
    ),
)
"""Name, question, what a failure means, and where a page shows it."""


@dataclass(frozen=True)
class Term:
    """A word of the glossary with its anchor."""

    word: str
    meaning: str

    @property
    def id(self) -> str:
        """The anchor on the page Glossary: `fair-pair`."""
        return self.word.lower().replace(" ", "-")


def list_terms() -> list[Term]:
    """Every word in alphabetical order."""
    return [Term(word, GLOSSARY[word]) for word in sorted(GLOSSARY)]
