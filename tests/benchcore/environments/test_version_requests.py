"""Requests for versions: what is read, what is refused, and the release that each becomes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version
from uv_messages import (
    FORBIDDEN,
    NEEDS_NEWER_PYTHON,
    NO_SUCH_VERSION,
    NO_WHEELS,
    UNCACHED,
    make_failure,
)

from benchcore.environments import version_index, version_requests
from benchcore.environments.interpreters import Interpreter, fetch_interpreter
from benchcore.environments.uv_command import UvAnswer
from benchcore.environments.version_requests import Request, parse_request, resolve
from benchcore.errors import UserError

PY311 = Interpreter(Path("/pythons/3.11"), "3.11.7")
PY312 = Interpreter(Path("/pythons/3.12"), "3.12.1")
PY313 = Interpreter(Path("/pythons/3.13"), "3.13.0")

Offers = dict[str, list[str]]
FakeIndex = Callable[..., None]


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    """An index that offers each Python minor its versions; `broken` ones lack a dependency."""

    def install(offers: Offers, *, broken: Offers | None = None, offline: bool = False) -> None:
        def answer(arguments: list[str], *, stdin: str) -> UvAnswer:
            where = Path(arguments[arguments.index("--python") + 1]).name
            if "--python-version" in arguments:
                where = arguments[arguments.index("--python-version") + 1]
            specifier = stdin.strip().removeprefix("jax")
            fitting = [each for each in offers.get(where, []) if _fits(each, specifier)]
            if "--no-deps" not in arguments:
                fitting = [each for each in fitting if each not in (broken or {}).get(where, [])]
            if not fitting:
                return make_failure(NO_WHEELS)
            pin = f"jax=={max(fitting, key=Version)}\n"
            return UvAnswer(output=pin, message="", failure=None, offline=offline)

        monkeypatch.setattr(version_index, "run_uv_or_cached", answer)
        monkeypatch.setattr(version_index, "run_uv", answer)

    return install


def _fits(version: str, specifier: str) -> bool:
    if specifier.startswith("=="):
        return Version(version) == Version(specifier[2:])
    return not specifier or Version(version) < Version(specifier[1:])


@pytest.fixture
def no_network_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def install(message: str) -> None:
        for name in ("run_uv", "run_uv_or_cached"):
            monkeypatch.setattr(version_index, name, lambda *_, **__: make_failure(message))

    return install


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("jax", Request(framework="jax", selector="newest")),
        ("torch@newest", Request(framework="torch", selector="newest")),
        ("torch@previous", Request(framework="torch", selector="previous")),
        ("jax==0.12.0", Request(framework="jax", selector="pinned", version="0.12.0")),
        ("jax==0.13.0-RC1", Request(framework="jax", selector="pinned", version="0.13.0rc1")),
        ("torch==2.13.0+cpu", Request(framework="torch", selector="pinned", version="2.13.0+cpu")),
        (
            "torch[opacus]==2.15.0",
            Request(framework="torch", selector="pinned", version="2.15.0", extras=("opacus",)),
        ),
        ("jax@system", Request(framework="jax", selector="system")),
        (
            f"torch@system:{sys.executable}",
            Request(framework="torch", selector="system", python=Path(sys.executable)),
        ),
        ("stdlib", Request(framework="stdlib", selector="newest")),
    ],
)
def test_requests_are_read_and_written_back(text: str, request_: Request) -> None:
    assert parse_request(text) == request_
    assert parse_request(str(request_)) == request_


def test_a_request_without_brackets_reads_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_requests, "load_template", None)
    assert parse_request("jax@previous") == Request(framework="jax", selector="previous")
    with pytest.raises(TypeError):
        parse_request("torch[opacus]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "jax; rm -rf /",
        "../x",
        "jax==1.0 --index-url http://x",
        "jax==1.0\n--index-url http://x",
        "jax\n",
        "jax==",
        "jax==1..2",
        "jax==0.12.*",
        "jax==1!2.0",
        "jax>=0.10",
        "jax @ file:///etc/passwd",
        "jax[cuda13]",
        "jax[opacus]",
        "torch[opacus",
        "torch[opacus,opacus]",
        "torch[../x]",
        "torch[]",
        "torch[opacus]@system",
        "JAX",
        "j\u0430x",
        "jax==\u0661.\u0662",
        "jax==" + "1" * 10_000,
        "torch" * 2_000,
        "jax@oldest",
        "jax@newest:/usr/bin/python3",
        "jax@system:",
        "jax@system:python3",
        "jax@system:/nowhere/python3",
        "jax@system:/etc/passwd",
        "jax@system:/usr/bin",
        "jax@system:/usr/bin/python3\x00",
        "jax@system:/" + "a" * 1_000,
        "jax@system:~no-such-user/bin/python3",
        "stdlib==3.12",
        "tensorflow",
    ],
)
def test_hostile_or_mistaken_requests_are_refused_in_one_paragraph(text: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse_request(text)

    message = str(refusal.value)
    assert message.startswith("wanted ")
    assert "got " in message
    assert ";" in message
    assert "\n" not in message
    assert len(message) < 400


def test_newest_is_the_highest_version_not_the_newest_python(index: FakeIndex) -> None:
    index({"3.11": ["0.10.2"], "3.12": ["0.10.2", "0.12.0"], "3.13": ["0.11.0"]})

    release = resolve(parse_request("jax"), [PY311, PY312, PY313])

    assert (release.version, release.python, release.role) == ("0.12.0", PY312.path, "newest")
    assert release.notes == ()


def test_of_several_pythons_with_the_newest_release_the_newest_python_is_taken(
    index: FakeIndex,
) -> None:
    index({"3.12": ["0.12.0"], "3.13": ["0.12.0"]})

    assert resolve(parse_request("jax"), [PY312, PY313]).python == PY313.path


def test_versions_are_compared_as_versions(index: FakeIndex) -> None:
    index({"3.13": ["0.9.2", "0.10.0"]})

    assert resolve(parse_request("jax"), [PY313]).version == "0.10.0"


def test_previous_is_chosen_with_its_own_interpreter(index: FakeIndex) -> None:
    index({"3.12": ["0.11.0", "0.12.0"], "3.13": ["0.12.0"]})

    newest = resolve(parse_request("jax"), [PY312, PY313])
    previous = resolve(parse_request("jax@previous"), [PY312, PY313])

    assert (newest.version, newest.python) == ("0.12.0", PY313.path)
    assert (previous.version, previous.python, previous.role) == (
        "0.11.0",
        PY312.path,
        "previous",
    )


def test_a_python_whose_dependencies_lack_wheels_is_passed_over(index: FakeIndex) -> None:
    index({"3.12": ["0.12.0"], "3.13": ["0.12.0"]}, broken={"3.13": ["0.12.0"]})

    assert resolve(parse_request("jax"), [PY312, PY313]).python == PY312.path


def test_a_release_without_a_suitable_python_is_reported(index: FakeIndex) -> None:
    index({"3.11": ["0.10.2"], "3.12": ["0.12.0"]})

    release = resolve(parse_request("jax"), [PY311])

    assert release.version == "0.10.2"
    assert release.notes == (
        "JAX 0.10.2: newer 0.12.0 needs Python >= 3.12, which was not found (UV_PYTHON_DOWNLOADS="
        "never forbids uv to fetch it); install one, or run `uv python install 3.12`",
    )
    assert resolve(parse_request("jax"), [PY311, PY312], python="3.11").notes == (
        "JAX 0.10.2: newer 0.12.0 needs Python >= 3.12, and 3.11 was requested",
    )


def test_where_no_python_can_be_fetched_the_older_release_says_so(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index({"3.11": ["0.10.2"], "3.12": ["0.12.0"]})
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS", raising=False)
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9/pythons")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "pythons"))
    fetch_interpreter.cache_clear()
    release = resolve(parse_request("jax"), [PY311])
    fetch_interpreter.cache_clear()
    assert release.version == "0.10.2"
    assert release.notes == (
        "JAX 0.10.2: newer 0.12.0 needs Python >= 3.12, which was not found (uv could not fetch "
        "it: its download host did not answer); install one, or run `uv python install 3.12`",
    )


def test_a_python_that_uv_may_fetch_runs_the_newest_release(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index({"3.11": ["0.10.2"], "3.12": ["0.11.0"], "3.13": ["0.12.0"], "3.14": ["0.12.0"]})
    fetched: list[str] = []
    monkeypatch.setattr(version_requests, "fetch_interpreter", fetched.append)
    monkeypatch.setattr(version_requests, "find_interpreters", lambda: [PY313, PY311])

    release = resolve(parse_request("jax"), [PY311])

    assert fetched == ["3.13"]
    assert (release.version, release.python, release.notes) == ("0.12.0", PY313.path, ())
    assert resolve(parse_request("jax@previous"), [PY311]).version == "0.10.2"


def test_a_fetched_python_that_lacks_wheels_is_named(
    index: FakeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index({"3.11": ["0.10.2"], "3.13": ["0.12.0"]}, broken={"3.13": ["0.12.0"]})
    monkeypatch.setattr(version_requests, "fetch_interpreter", lambda minor: None)
    monkeypatch.setattr(version_requests, "find_interpreters", lambda: [PY313, PY311])
    release = resolve(parse_request("jax"), [PY311])
    assert release.version == "0.10.2"
    assert release.notes == (
        "JAX 0.10.2: newer 0.12.0 needs Python >= 3.13, where it can't be installed",
    )


def test_answers_from_the_cache_are_reported(index: FakeIndex) -> None:
    index({"3.13": ["0.12.0"]}, offline=True)

    assert resolve(parse_request("jax==0.12.0"), [PY313]).notes == (
        "no network: the versions come from uv's cache; newer ones may exist",
    )


def test_the_user_restricts_the_interpreters(index: FakeIndex) -> None:
    index({"3.11": ["0.10.2"], "3.12": ["0.12.0"], "3.13": ["0.12.0"]})
    found = [PY311, PY312, PY313]

    assert resolve(parse_request("jax"), found, python="3.12").python == PY312.path
    assert resolve(parse_request("stdlib"), found, python="3.11.7").version == "3.11.7"
    with pytest.raises(UserError, match=r"wanted a CPython 3\.1, found 3\.11\.7, 3\.12\.1"):
        resolve(parse_request("jax"), found, python="3.1")
    with pytest.raises(UserError, match="wanted a Python version such as"):
        resolve(parse_request("jax"), found, python="3.12; rm")


def test_the_bare_interpreter_is_the_newest() -> None:
    release = resolve(parse_request("stdlib"), [PY311, PY313, PY312])

    assert (release.framework, release.version, release.python) == (
        "stdlib",
        "3.13.0",
        PY313.path,
    )


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (NO_SUCH_VERSION, "the package index has no such release"),
        (NEEDS_NEWER_PYTHON, r"none of the interpreters found \(3\.11\.7\).*Python >=3\.12$"),
        (NO_WHEELS, "none of the interpreters found .* uv reported: error: No solution"),
        (UNCACHED, "the package index did not answer and uv's cache lacks"),
        (FORBIDDEN, "uv could not query the package index.*403 Forbidden"),
    ],
)
def test_reasons_why_a_pinned_release_is_unavailable_are_distinguished(
    message: str, advice: str, no_network_answer: Callable[[str], None]
) -> None:
    no_network_answer(message)
    text = "jax==9.9.9" if "9.9.9" in message else "jax==0.12.0"

    with pytest.raises(UserError, match=f"(?s)^wanted {text}, .*{advice}"):
        resolve(parse_request(text), [PY311])


def test_no_release_at_all_is_reported(no_network_answer: Callable[[str], None]) -> None:
    no_network_answer(NO_WHEELS)

    with pytest.raises(UserError, match="no such release that the interpreters found"):
        resolve(parse_request("jax@previous"), [PY311])


def test_a_system_python_without_the_framework_is_refused() -> None:
    with pytest.raises(UserError, match="has no jax"):
        resolve(parse_request(f"jax@system:{sys.executable}"), [])
    with pytest.raises(UserError, match=r"wanted torch@system on Python 3\.99"):
        resolve(parse_request("torch@system"), [], python="3.99")
