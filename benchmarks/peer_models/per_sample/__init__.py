"""A plain `jit(vmap(grad))` beside our per-sample gradients."""
