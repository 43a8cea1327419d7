"""What forking contenders has in common for unfair sides and for tests.

Imports only the standard library: it is copied into a measured layer, and runs in the Python of a
framework.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping


def set_objects_aside() -> None:
    """Contenders look through all objects several times: let each see its own alone. Their guards
    count no object as set aside but those that a contender adds."""
    gc.collect()
    gc.freeze()
    count, shared = gc.get_freeze_count, gc.get_freeze_count()
    gc.get_freeze_count = lambda: max(0, count() - shared)  # some are freed


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables in a fork: JAX has read that of its cache when it was imported."""
    os.environ.update(variables)
    if (jax := sys.modules.get("jax")) and "JAX_COMPILATION_CACHE_DIR" in variables:
        jax.config.update("jax_compilation_cache_dir", variables["JAX_COMPILATION_CACHE_DIR"])
