"""A plain `jit(vmap(grad))` to compare with our per-sample gradients."""
