import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from benchcore.environments import uv_command, version_index, version_requests
from benchcore.environments.interpreters import Interpreter, fetch_interpreter, find_interpreters
from benchcore.environments.uv_command import UvAnswer, classify_failure, run_uv_or_cached, shorten
from benchcore.environments.version_requests import Request, parse_request, resolve
from benchcore.errors import UserError

PY311 = Interpreter(Path("/pythons/3.11"), "3.11.7")
PY312 = Interpreter(Path("/pythons/3.12"), "3.12.1")
PY313 = Interpreter(Path("/pythons/3.13"), "3.13.0")

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

Offers = dict[str, list[str]]
FakeIndex = Callable[..., None]


def _failed(message: str) -> UvAnswer:
    return UvAnswer(
        output="", message=message, failure=classify_failure(message), offline="cache" in message
    )


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
                return _failed(NO_WHEELS)
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
            monkeypatch.setattr(version_index, name, lambda *_, **__: _failed(message))

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


@pytest.mark.parametrize(
    ("stderr", "failure"),
    [
        (NO_SUCH_VERSION, "unsatisfiable"),
        (NO_WHEELS, "unsatisfiable"),
        (UNREACHABLE, "unreachable"),
        (UNCACHED, "uncached"),
        (UNCACHED_WHEEL, "uncached"),
        (FORBIDDEN, "other"),
        ("", "other"),
    ],
)
def test_failures_of_uv_are_distinguished(stderr: str, failure: str) -> None:
    assert classify_failure(stderr) == failure


@pytest.mark.parametrize(
    ("cached", "failure", "offline"), [("", None, True), (UNCACHED, "uncached", True)]
)
def test_if_the_index_does_not_answer_the_cache_is_read_once(
    cached: str, failure: str | None, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def answer(arguments: list[str], **_: object) -> UvAnswer:
        calls.append(arguments)
        if "--offline" not in arguments:
            return _failed(UNREACHABLE)
        failure = classify_failure(cached) if cached else None
        return UvAnswer(output="jax==0.12.0", message=cached, failure=failure, offline=True)

    monkeypatch.setattr(uv_command, "run_uv", answer)

    result = run_uv_or_cached(["pip", "compile", "-"])

    assert calls == [["pip", "compile", "-"], ["pip", "compile", "-", "--offline"]]
    assert (result.failure, result.offline) == (failure, offline)
    assert ("refused" in result.message) is (failure is not None)


def test_uv_that_never_answers_counts_as_no_network() -> None:
    answer = uv_command.run_uv(["pip", "compile", "-"], timeout_s=0.001)

    assert (answer.failure, answer.message) == ("unreachable", "uv pip gave no answer within 0 s")


def test_long_messages_keep_their_beginning_and_end() -> None:
    short = shorten("first " + "x" * 10_000 + " last")

    assert short.startswith("first")
    assert short.endswith("last")
    assert len(short) < 2_000


def test_a_system_python_without_the_framework_is_refused() -> None:
    with pytest.raises(UserError, match="has no jax"):
        resolve(parse_request(f"jax@system:{sys.executable}"), [])
    with pytest.raises(UserError, match=r"wanted torch@system on Python 3\.99"):
        resolve(parse_request("torch@system"), [], python="3.99")


@pytest.fixture
def only_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Interpreter]:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
    return find_interpreters()


@pytest.mark.provisions
def test_the_real_index_limits_the_release_to_the_pythons_found(
    only_this_python: list[Interpreter],
) -> None:
    if only_this_python[0].release[:2] != (3, 11):
        pytest.skip("jax >= 0.11 installs on the Python that runs the tests")
    release = resolve(parse_request("jax"), only_this_python)

    assert Version(release.version) < Version("0.11")
    assert Path(release.python) == Path(os.path.realpath(release.python))
    assert len(release.notes) == 1
    assert release.notes[0].startswith(f"JAX {release.version}: newer ")
    assert "needs Python >= 3.12, which was not found" in release.notes[0]


@pytest.mark.provisions
def test_previous_comes_right_before_newest_in_the_real_index() -> None:
    found = find_interpreters()
    newest = resolve(parse_request("torch"), found)
    previous = resolve(parse_request("torch@previous"), found)

    assert Version(previous.version) < Version(newest.version)
    assert not Version(newest.version).is_prerelease


@pytest.mark.provisions
def test_an_unpublished_release_is_refused_by_the_real_index() -> None:
    with pytest.raises(UserError, match=r"wanted jax==9\.9\.9, but the package index has no such"):
        resolve(parse_request("jax==9.9.9"), find_interpreters())


@pytest.mark.provisions
def test_a_release_without_wheels_is_refused_by_the_real_index() -> None:
    with pytest.raises(UserError, match="none of the interpreters found"):
        resolve(parse_request("jax==0.4.10"), find_interpreters())


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that refuses every connection."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


@pytest.mark.usefixtures("no_network")
def test_neither_network_nor_cache_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))

    found = find_interpreters()

    for text in ("jax", "torch@previous", "jax==0.10.1"):
        with pytest.raises(UserError, match="the package index did not answer and uv's cache"):
            resolve(parse_request(text), found)


@pytest.mark.provisions
def test_an_answer_from_the_cache_is_reported_if_there_is_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = find_interpreters()
    online = resolve(parse_request("jax"), found)
    monkeypatch.setenv("UV_OFFLINE", "1")

    offline = resolve(parse_request("jax"), found)

    assert offline.version == online.version
    assert any(note.startswith("no network") for note in offline.notes)
