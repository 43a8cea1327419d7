"""Public Flax ports as their own examples run them: their initial weights, jitted forward pass."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchcore.program import Arrays, Program

Forward = Callable[[Any, jax.Array], jax.Array]
Place = Callable[[np.ndarray], jax.Array]


def build(case: Any, arrays: Arrays, settings: Mapping[str, Any]) -> Program:
    """Ours, or the port that the setting `side` names."""
    given = dict(settings)
    side = given.pop("side")
    workload = importlib.import_module(f"{__package__}.spec").WORKLOAD
    if side == "ours":
        module = importlib.import_module(f"benchcore.workloads.{workload}.in_jax")
        return module.build(case, arrays, given)
    if side == "optax":
        return importlib.import_module(f"{__package__}.per_sample.in_jax").build(case, arrays)
    variables, place, forward = _PORTS[workload, side](arrays.inputs["images"])
    compiled = jax.jit(forward)
    return Program(
        place=lambda inputs: (place(inputs["images"]),),
        step=lambda inputs: compiled(variables, *inputs),
        read=lambda logits: {"logits": np.array(logits)},
        lower=lambda inputs: compiled.lower(variables, *inputs),
        held=lambda inputs: {
            "params": variables,
            "inputs": inputs,
            "function": compiled,
            "arguments": (variables, *inputs),
        },
    )


def _jax_resnet(images: np.ndarray) -> tuple[Any, Place, Forward]:
    from jax_resnet import ResNet50  # pyright: ignore[reportMissingImports]

    model = ResNet50(n_classes=1000)

    def place(images: np.ndarray) -> jax.Array:
        return jnp.asarray(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))

    variables = jax.jit(model.init)(jax.random.key(0), place(images))
    return variables, place, lambda variables, value: model.apply(variables, value, mutable=False)


def _transformers(kind: str) -> Callable[[np.ndarray], tuple[Any, Place, Forward]]:
    def make(images: np.ndarray) -> tuple[Any, Place, Forward]:
        import transformers  # pyright: ignore[reportMissingImports]

        config = getattr(transformers, f"{kind}Config")(num_labels=1000)
        model = getattr(transformers, f"Flax{kind}ForImageClassification")(config)
        # Channels first, as its API wants them.
        return model.params, jnp.asarray, lambda p, x: model(x, params=p).logits

    return make


_PORTS: dict[tuple[str, str], Callable[[np.ndarray], tuple[Any, Place, Forward]]] = {
    ("resnet50", "jax-resnet"): _jax_resnet,
    ("resnet50", "transformers"): _transformers("ResNet"),
    ("vit_b_16", "transformers"): _transformers("ViT"),
}
