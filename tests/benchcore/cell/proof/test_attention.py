"""The kernel of attention, read from the names of JAX's primitives and from torch's switches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchcore.cell.proof.attention import choose_in_torch, describe_in_jax, describe_in_torch


@pytest.mark.parametrize(
    ("primitives", "reading"),
    [
        (["dot_general", "exp"], "usual"),
        (["dot_general", "dot_product_attention_fwd_wrapper"], "cudnn"),
        (["dot_product_attention_fp8_bwd_wrapper"], "cudnn"),
        ([], "usual"),
    ],
)
def test_cudnns_attention_is_known_by_its_primitives(primitives: list[str], reading: str) -> None:
    assert describe_in_jax(primitives) == reading


class _Torch:
    """torch's switches of kernels. Some were on when it was imported."""

    def __init__(self, *on: str) -> None:
        names = ("flash_sdp", "math_sdp", "mem_efficient_sdp", "cudnn_sdp")
        self._on = {name: name in on for name in names}
        switches = {f"{each}_enabled": (lambda name=each: self._on[name]) for each in names}
        switches |= {
            f"enable_{each}": (lambda value, name=each: self._on.update({name: value}))
            for each in names
        }
        self.backends = SimpleNamespace(cuda=SimpleNamespace(**switches))


def test_the_usual_kernels_are_those_that_were_on_when_torch_was_imported() -> None:
    """cuDNN's was off at first."""
    torch, usual = _Torch("flash_sdp", "math_sdp"), ["math", "flash"]
    assert describe_in_torch(torch, usual) == "usual"
    choose_in_torch(torch, "usual")
    assert describe_in_torch(torch, usual) == "usual"
    choose_in_torch(torch, "efficient")
    assert describe_in_torch(torch, usual) == "efficient"
    torch.backends.cuda.enable_math_sdp(True)
    assert describe_in_torch(torch, usual) == "math+efficient"
