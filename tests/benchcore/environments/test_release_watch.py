"""The release watch against a loopback index, whose releases appear, vanish and break."""

from __future__ import annotations

import pytest
from package_index import Index

from benchcore.environments import release_watch
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.release_watch import (
    MAX_TRIES,
    WATCHED,
    IndexCheck,
    check_index,
    list_watched,
    record_status,
    retry_release,
)
from benchcore.environments.version_requests import pick_interpreters
from benchcore.errors import UserError
from benchcore.state import State


def _look(state: State) -> IndexCheck:
    return check_index(state, pick_interpreters(find_interpreters(), None)[:1])


def _name(seen: tuple[release_watch.WatchedRelease, ...]) -> list[str]:
    return [f"{each.package} {each.version}" for each in seen]


def test_every_release_is_found_once_after_any_pause(state: State, index: Index) -> None:
    first = _look(state)
    assert first.new == first.pending == first.errors == ()
    index.publish("jax", "1.2", "1.10", "2.0rc1", "1.0.1")  # 1.0.1 fixes an older one
    index.publish("torch", "3.0", attributes='data-requires-python="&gt;=3.99"')
    index.publish("torch", "2.0", attributes='data-yanked="broken"')
    second = _look(state)
    assert _name(second.new) == ["jax 1.0.1", "jax 1.2", "jax 1.10", "jax 2.0rc1"]
    assert second.pending == second.new
    third = _look(state)
    assert third.new == () and third.pending == second.new  # not sent yet: still to be measured
    for each in second.pending:
        record_status(state, each.package, each.version, "sent")
    assert _look(state).pending == ()
    index.publish("torch", "3.0")  # for every Python, as it turns out
    assert _name(_look(state).new) == ["torch 3.0"]


def test_unchanged_releases_are_not_sent_again(state: State, index: Index) -> None:
    _look(state)
    index.answers.clear()
    _look(state)
    assert index.answers == [304] * len(WATCHED)


def test_a_release_withdrawn_before_it_was_measured_is_forgotten(
    state: State, index: Index
) -> None:
    _look(state)
    index.publish("jax", "1.2", "1.3")
    assert len(_look(state).pending) == 2
    index.publish("jax", "1.2", attributes="data-yanked")
    del index.releases["jax"]["1.3"]
    assert _look(state).pending == ()
    assert {(each.status, each.reason) for each in list_watched(state)} == {
        ("gone", "the index no longer has it")
    }


def test_an_index_that_breaks_loses_nothing(state: State, index: Index) -> None:
    _look(state)
    index.publish("jax", "1.2")
    assert len(_look(state).pending) == 1
    index.broken = True
    index.publish("jax", "1.3")
    broken = _look(state)
    assert _name(broken.pending) == ["jax 1.2"] and len(broken.errors) == len(WATCHED)
    assert all(each.partition(":")[0] in WATCHED for each in broken.errors)
    index.broken = False
    assert _name(_look(state).new) == ["jax 1.3"]


def test_a_failed_release_is_retried_when_a_companion_package_is_released(
    state: State, index: Index
) -> None:
    _look(state)
    index.publish("jax", "1.2")
    index.publish("torch", "1.2")
    _look(state)
    for package in ("jax", "torch"):
        record_status(state, package, "1.2", "failed", "it crashed")
    assert _look(state).pending == ()
    index.publish("optax", "1.2")
    found = _look(state)
    assert _name(found.new) == ["optax 1.2"]
    assert [(each.package, each.tries) for each in found.pending] == [("jax", 1)]
    assert found.pending[0].key == "deadheat-release-jax-1.2-1"


def test_a_lost_run_is_sent_again_a_limited_number_of_times(state: State) -> None:
    record_status(state, "jax", "1.2", "sent")
    for tries in range(1, MAX_TRIES):
        (seen,) = list_watched(state)
        assert retry_release(state, seen, "lost")
        (seen,) = list_watched(state)
        assert (seen.tries, seen.status) == (tries, "new")
    assert not retry_release(state, seen, "lost")
    assert list_watched(state) == [seen]


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 2, "packages": {}, "seen": []}', "[]"])
def test_a_mangled_file_is_reported_and_left_alone(state: State, text: str) -> None:
    path = state.root / "releases.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"what the release watch wrote in .*; remove the file"):
        list_watched(state)
    assert path.read_text() == text
