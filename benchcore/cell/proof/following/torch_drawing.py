"""Runs a step of torch, as it was written, with random bits that the harness gives."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from benchcore.cell.explain.torch_products import run_as_written, watch_operators
from benchcore.cell.proof.following.drawing import NUM_GIVEN, Followed, Read, make_uniform
from benchcore.program import ByName


class UnknownDrawError(Exception):
    """An operator draws numbers in a way that the harness can't replace."""


def draw_given(torch: Any, step: Callable[[], object], read: Read) -> Followed:
    """Run the steps with given bits. Raises UnknownDrawError."""
    outputs: list[ByName] = []
    drawn: list[bytes] = []
    place = 0

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal place
        before = read_generators(torch, func, kwargs)
        out = func(*args, **kwargs)
        if read_generators(torch, func, kwargs) == before:
            return out
        drawn.append(hashlib.sha256(b"".join(before)).digest())
        place += 1
        numbers = functools.partial(make_uniform, len(outputs), place)
        return _replace(torch, func, _bind(func, args, kwargs), out, numbers)

    while len(outputs) < NUM_GIVEN:
        place = 0
        with run_as_written(torch), watch_operators(torch, run):
            left = step()
        outputs.append(read(left))
    return Followed(outputs=outputs, drawn=drawn)


def _bind(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """An operator's arguments by name, with their defaults, which torch leaves out."""
    names = [each.name for each in func._schema.arguments]
    defaults = {each.name: each.default_value for each in func._schema.arguments}
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}


def _replace(
    torch: Any, func: Any, given: dict[str, Any], out: Any, draw: Callable[[int], Any]
) -> Any:
    """The operator's results with other random numbers."""
    name = func._schema.name.partition("::")[2]

    def give(like: Any) -> Any:
        return torch.from_numpy(draw(like.numel())).to(like.device).view(like.shape)

    with torch.no_grad():
        if name == "native_dropout":
            value, rate = given["input"], given["p"]
            mask = give(value) < 1 - rate
            out[0].copy_(value * mask / (1 - rate))
            out[1].copy_(mask)
        elif name.rstrip("_") == "bernoulli":
            out.copy_(give(out) < given.get("p", given["self"]))
        elif name in ("rand", "rand_like"):
            out.copy_(give(out))
        elif name == "uniform_":
            out.copy_(given["from"] + (given["to"] - given["from"]) * give(out))
        else:
            raise UnknownDrawError(func._schema.name)
    return out


def read_generators(torch: Any, func: Any, kwargs: Any) -> list[bytes]:
    """The states of the generators that an operator may draw from. A draw changes them; dropout and
    attention don't always draw."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return []
    states = [torch.random.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    own = (kwargs or {}).get("generator")
    states += [] if own is None else [own.get_state()]
    return [bytes(each.tolist()) for each in states]


def drops(module: Any) -> bool:
    """Whether a dropout or stochastic-depth module of the model is active."""
    modules = () if module is None else module.modules()
    return any(each.training and getattr(each, "p", 0.0) > 0.0 for each in modules)
