"""Past releases: those that can be installed here are found, skipped ones are reported."""

from __future__ import annotations

import pytest
from package_index import Index

from benchcore.environments.interpreters import Interpreter, find_interpreters
from benchcore.environments.version_index import find_previous_release, list_past_releases
from benchcore.environments.version_requests import pick_interpreters
from benchcore.errors import UserError


@pytest.fixture(scope="module")
def interpreters() -> list[Interpreter]:
    return pick_interpreters(find_interpreters(), None)[:1]


def test_a_release_that_cannot_be_installed_is_skipped_with_its_reason(
    index: Index, interpreters: list[Interpreter]
) -> None:
    index.publish("jax", "1.2", "1.3", "1.4rc1")
    index.publish("jax", "1.5", attributes='data-requires-python="&gt;=3.99"')
    index.publish("jax", "1.6", attributes='data-yanked="broken"')
    index.needs["jax", "1.2"] = "nowhere-to-be-found"
    past = list_past_releases("jax", interpreters, count=3)
    assert past.found == ("1.3", "1.1", "1.0")
    assert list(past.skipped) == ["1.2"]
    assert "nowhere-to-be-found" in past.skipped["1.2"]
    assert list_past_releases("jax", interpreters, below="1.3", count=1).found == ("1.1",)
    assert find_previous_release("jax", "1.3", interpreters) == "1.1"
    assert list_past_releases("jax", interpreters, count=8).found == ("1.3", "1.1", "1.0")


def test_no_release_and_a_failing_index_are_reported(
    index: Index, interpreters: list[Interpreter]
) -> None:
    with pytest.raises(UserError, match=r"wanted a release of jax before 1\.0, but none"):
        find_previous_release("jax", "1.0", interpreters)
    index.broken = True
    with pytest.raises(UserError, match="wanted the releases of torch, but uv could not query"):
        list_past_releases("torch", interpreters, count=2)
