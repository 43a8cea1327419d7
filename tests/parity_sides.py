"""Sides of a pair with equal manifests, but for the readings that a test changes."""

from __future__ import annotations

from result_documents import make_manifest

from benchcore.verdict.duel.parity import ParitySide


def jax_side(settings: dict[str, str] | None = None, /, **readings: str) -> ParitySide:
    """JAX, compiled; `settings` are those its arm chose beside that."""
    return _make_side("jax", {"compile": "jit", **(settings or {})}, readings)


def torch_side(settings: dict[str, str] | None = None, /, **readings: str) -> ParitySide:
    """PyTorch, compiled; `settings` are those its arm chose beside that."""
    return _make_side("torch", {"compile": "default", **(settings or {})}, readings)


def _make_side(framework: str, settings: dict[str, str], readings: dict[str, str]) -> ParitySide:
    manifest = make_manifest(framework, **readings)
    return ParitySide(name=framework, framework=framework, settings=settings, manifest=manifest)
