"""What uv writes where it finds no release, and the answers that are made of it."""

from __future__ import annotations

from benchcore.environments.uv_command import UvAnswer, classify_failure

NO_SUCH_VERSION = """error: No solution found when resolving dependencies
  cause: Because there is no version of jax==9.9.9 and you require jax==9.9.9, we can conclude
that your requirements are unsatisfiable."""
NEEDS_NEWER_PYTHON = """error: No solution found when resolving dependencies
  cause: Because the requested Python version (>=3.11) does not satisfy Python>=3.12 and
jax==0.12.0 depends on Python>=3.12, we can conclude that jax==0.12.0 cannot be used."""
NO_WHEELS = """error: No solution found when resolving dependencies
  cause: Because jaxlib==0.6.0 has no wheels with a matching Python ABI tag (e.g., `cp317`)"""
UNREACHABLE = """error: Request failed after 3 retries in 10.5s
  cause: Failed to fetch: http://127.0.0.1:9/simple/jax/
  cause: error sending request for url (http://127.0.0.1:9/simple/jax/)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)"""
UNCACHED = """error: No solution found when resolving dependencies
  cause: Because jax was not found in the cache and you require jax, we can conclude that your
requirements are unsatisfiable.

hint: Packages were unavailable because the network was disabled. When the network is disabled,
registry packages may only be read from the cache."""
UNCACHED_WHEEL = """error: Failed to download `nvidia-cufft==12.0.0.61`
  cause: Network connectivity is disabled, but the requested data wasn't found in the cache: http"""
FORBIDDEN = """error: Failed to fetch: `http://127.0.0.1:9/simple/jax/`
  cause: HTTP status client error (403 Forbidden) for url (http://127.0.0.1:9/simple/jax/)"""


def make_failure(message: str) -> UvAnswer:
    """The answer of a uv that failed with this message."""
    return UvAnswer(
        output="", message=message, failure=classify_failure(message), offline="cache" in message
    )
