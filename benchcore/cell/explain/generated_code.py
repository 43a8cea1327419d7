"""Reads inductor's generated code: its kernels, its library calls, and a stable hash.

Each compiled graph is one Python file: kernels as `NAME = async_compile.KIND(...)`, and a function
`call` that runs them. The hash ignores comments, which have the user's source lines, and paths,
which depend on the machine.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

_KERNEL = re.compile(r"^\w+ = async_compile\.(\w+)\(", re.MULTILINE)
_LIBRARY = re.compile(r"^ .*?\b(?:extern_kernels|torch\.ops\.\w+)\.(\w+)[\w.]*\(", re.MULTILINE)
_COMMENT = re.compile(r"^\s*(?:# |#$|//).*$", re.MULTILINE)
_TRAILING = re.compile(r"  # [^'\"\n]*$", re.MULTILINE)
_PATH = re.compile(r"(?<=[\"'<])/[^\"'>\n]*(?=[\"'>])")


def describe_code(sources: Iterable[str]) -> dict[str, Any]:
    """`hash`, and `counts` of generated kernels and of library calls by name. None = no code."""
    plain = sorted(_strip(source) for source in sources)
    counts: Counter[str] = Counter()
    for source in plain:
        counts["generated kernel"] += len(_KERNEL.findall(source))
        counts.update(f"library {name}" for name in _LIBRARY.findall(source))
    digest = hashlib.sha256("\0".join(plain).encode()).hexdigest()
    return {"hash": digest if plain else None, "counts": dict(sorted(counts.items()))}


def _strip(source: str) -> str:
    bare = _PATH.sub("path", _TRAILING.sub("", _COMMENT.sub("", source)))
    return "\n".join(line for line in bare.splitlines() if line.strip())
