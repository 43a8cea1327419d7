from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from result_documents import (
    CAMPAIGN,
    DUEL_RUN,
    JAX,
    SLURM,
    make_document,
    make_evidence,
    spool_document,
)

from benchcore.protocol import write_json
from benchcore.store.incoming import documents
from benchcore.store.incoming.documents import MOST_BYTES, read_document

Document = dict[str, Any]


def test_a_valid_document_is_read_completely(tmp_path: Path) -> None:
    document = make_document()
    assert read_document(spool_document(tmp_path, document)) == document


def first(document: Document) -> Any:
    return document["contenders"][0]


WRONG: dict[str, tuple[Callable[[Document], object], str]] = {
    "another schema": (
        lambda d: d.update(schema=2),
        "$.schema: wanted schema 1, got schema 2, which a newer Dead Heat wrote; update Dead Heat, "
        "then run `deadheat ingest` again",
    ),
    "no schema of any version": (lambda d: d.update(schema=0), "$.schema: wanted const 1, got 0"),
    "an unknown key": (
        lambda d: d.update(novel=1),
        "$: wanted additionalProperties False, got",
    ),
    "a missing key": (
        lambda d: d["duel"].pop("seed"),
        "'seed' is a required property",
    ),
    "a wrong type far inside": (
        lambda d: first(d)["starts"][1]["blocks"][2].update(elapsed_ns="fast"),
        "$.contenders[0].starts[1].blocks[2].elapsed_ns: wanted type 'integer', got 'fast'",
    ),
    "a time of zero": (
        lambda d: first(d)["starts"][0]["blocks"][0].update(elapsed_ns=0),
        "$.contenders[0].starts[0].blocks[0].elapsed_ns: wanted minimum 1, got 0",
    ),
    "a contender twice": (
        lambda d: d.update(contenders=[first(d), first(d)], equivalence=[]),
        "$.contenders[*].name: wanted each once, got ['jax-0.9'] more than once",
    ),
    "evidence of a stranger": (
        lambda d: d["equivalence"].append(make_evidence("jax-0.9", "nobody")),
        "$.equivalence[1].b: wanted a contender's name, one of ['jax-0.9', 'torch-2.10'], "
        "got 'nobody'",
    ),
    "evidence twice": (
        lambda d: d["equivalence"].append(d["equivalence"][0]),
        "$.equivalence[*]: wanted each once",
    ),
    "a start twice": (
        lambda d: first(d)["starts"][1].update(index=0),
        "$.contenders[0].starts[*].index: wanted each once, got [0]",
    ),
    "a round twice": (
        lambda d: first(d)["starts"][1]["blocks"][1].update(round=0),
        "$.contenders[0].starts[1].blocks[*].round: wanted each once, got [0]",
    ),
    "a version without an order": (
        lambda d: first(d).update(version="main branch"),
        "$.contenders[0].version: wanted a version that can be ordered",
    ),
    "a day that does not exist": (
        lambda d: d["allocation"].update(started_at="2026-02-30T00:00:00+00:00"),
        "$.allocation.started_at: wanted a time that exists",
    ),
    "a start on a day that does not exist": (
        lambda d: first(d)["starts"][2].update(started_at="2026-02-30T00:00:00+00:00"),
        "$.contenders[0].starts[2].started_at: wanted a time that exists",
    ),
    "a wait that is negative": (
        lambda d: d["allocation"].update(slurm={**SLURM, "queue_s": -1}),
        "$.allocation.slurm.queue_s: ",
    ),
    "a job with a field that nobody knows": (
        lambda d: d["allocation"].update(slurm={**SLURM, "user": "me"}),
        "$.allocation.slurm: ",
    ),
    "an end before its start": (
        lambda d: d["allocation"].update(ended_at="2020-01-01T00:00:00+00:00"),
        "$.allocation.ended_at: wanted a time not before '2026-01-02T03:04:05+00:00'",
    ),
    "an integer beyond 64 bits": (
        lambda d: d["duel"].update(flops_per_step=2**63),
        "$.duel.flops_per_step: wanted an integer of 64 bits, got 9223372036854775808",
    ),
    "a NUL": (
        lambda d: first(d)["settings"].update(flag="a\x00b"),
        "$.contenders[0].settings.flag: wanted text without NUL",
    ),
    "a lone surrogate": (
        lambda d: first(d)["settings"].update({"\ud800": 1}),
        "$.contenders[0].settings (a key): wanted text without NUL and lone surrogates",
    ),
    "another id than its file's name": (
        lambda d: d.update(duel_run="f" * 16),
        f"$.duel_run: wanted '{DUEL_RUN}', after the file's path, got 'ffffffffffffffff'",
    ),
    "a checkpoint that its case does not name": (
        lambda d: d["duel"].update(checkpoint="c" * 64),
        "$.duel.case: wanted a name that ends with '+cccccccccccc', as in $.duel.checkpoint, got "
        "'tiny'",
    ),
    "a case that names another checkpoint": (
        lambda d: d["duel"].update(checkpoint="c" * 64, case="tiny+dddddddddddd"),
        "$.duel.case: wanted a name that ends with '+cccccccccccc'",
    ),
    "a case that names a checkpoint it lacks": (
        lambda d: d["duel"].update(case="tiny+cccccccccccc"),
        "$.duel.case: wanted no checkpoint's name",
    ),
    "another campaign than its folder": (
        lambda d: d.update(campaign="another"),
        f"$.campaign: wanted '{CAMPAIGN}', after the file's path, got 'another'",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), WRONG.values(), ids=WRONG)
def test_an_error_is_named_with_its_place(
    spoil: Callable[[Document], object], message: str, tmp_path: Path
) -> None:
    path = spool_document(tmp_path, make_document())
    document = json.loads(path.read_text())
    spoil(document)
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError) as caught:
        read_document(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "wanted a JSON document, got b''"),
        (b'{"schema": 1,', "wanted a JSON document"),
        (b"\xff\xfe\x00", "wanted a JSON document"),
        (b"[" * 100_000, "wanted a JSON document"),
        (b'{"schema": NaN}', "wanted a finite number or null, got NaN"),
        (b'{"schema": 1, "schema": 1}', "wanted each key once, got ['schema'] more than once"),
        (b"null", "$: wanted type 'object', got None"),
        (b'{"schema": ' + b"1" * 5000 + b"}", "wanted a JSON document"),
    ],
)
def test_a_file_that_is_not_a_document_is_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_document(path)
    assert message in str(caught.value)


def test_a_document_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)  # a hole: takes no space
    with pytest.raises(ValueError, match="wanted a document of at most"):
        read_document(path)


def test_a_document_of_an_older_version_is_refused_with_what_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_document(tmp_path, make_document())
    monkeypatch.setattr(documents, "_find_number", lambda name: 2)
    with pytest.raises(ValueError) as caught:
        read_document(path)
    assert str(caught.value) == (
        "$.schema: wanted schema 2, got schema 1, which an older Dead Heat wrote; ingest it with "
        "that version"
    )


def test_an_infinite_number_is_refused(tmp_path: Path) -> None:
    path = spool_document(tmp_path, make_document())
    path.write_text(path.read_text().replace('"max_relative": 1e-07', '"max_relative": 1e999'))
    with pytest.raises(ValueError, match=r"equivalence\[0\]\.max_relative: wanted a finite number"):
        read_document(path)


@pytest.mark.parametrize(
    ("flag", "encoding"),
    [
        (r'"\uD83D"', "utf-8"),
        (r'"\udfff"', "utf-16"),
        (r'"\u0000"', "utf-8"),
        ('"\udbff"', "utf-8"),
        ("-9223372036854775809", "utf-16"),
        ("-1e400", "utf-8"),
    ],
)
def test_what_no_database_stores_is_refused_however_it_is_written(
    flag: str, encoding: str, tmp_path: Path
) -> None:
    document = make_document()
    first(document)["settings"]["flag"] = "FLAG"
    path = spool_document(tmp_path, document)
    text = path.read_text().replace('"FLAG"', flag)
    path.write_bytes(text.encode(encoding, "surrogatepass"))
    with pytest.raises(ValueError, match=r"^\$\.contenders\[0\]\.settings\.flag: wanted "):
        read_document(path)


@pytest.mark.parametrize("flag", ["\N{GREEK SMALL LETTER MU}s", "\N{RACING CAR}", r"\u0000"])
def test_any_other_text_is_stored(flag: str, tmp_path: Path) -> None:
    document = make_document()
    first(document)["settings"]["flag"] = flag
    path = spool_document(tmp_path, document)
    assert read_document(path) == document
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    assert read_document(path) == document


def test_a_document_as_it_is_written_is_read_the_fast_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_document(tmp_path, make_document())
    written = read_document(path)
    write_json(path, written)
    monkeypatch.setattr(documents, "_load", lambda *_: pytest.fail("read every value twice"))
    assert read_document(path) == written


@pytest.mark.parametrize("blank", ["", " ", "\n", "\t", "\r"])
@pytest.mark.parametrize("other", ["", '"a\\":": 1, '])
def test_a_key_that_is_there_twice_is_refused_whatever_is_between_it_and_its_colon(
    blank: str, other: str, tmp_path: Path
) -> None:
    path = tmp_path / "document.json"
    path.write_text(f'{{{other}"x"{blank}: 1, "y": 2, "y": {{"z"{blank}: 3}}}}', newline="")
    with pytest.raises(ValueError, match=r"wanted each key once, got \['y'\]"):
        read_document(path)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**18, -(10**19), 0.1, 1e300])
def test_a_number_is_read_as_python_reads_it(number: float, tmp_path: Path) -> None:
    document = make_document()
    first(document)["settings"]["flag"] = number
    path = spool_document(tmp_path, document)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        with pytest.raises(ValueError, match="wanted an integer of 64 bits"):
            read_document(path)
    else:
        found = first(read_document(path))["settings"]["flag"]
        assert (found, type(found)) == (number, type(number))


def test_many_problems_are_summarised(tmp_path: Path) -> None:
    document = make_document(starts=10, rounds=10)
    for start in first(document)["starts"]:
        for block in start["blocks"]:
            block["steps"] = 0
    with pytest.raises(ValueError, match="; and 90 more") as caught:
        read_document(spool_document(tmp_path, document))
    assert len(str(caught.value)) < 3000


def test_stdlib_needs_no_version_that_can_be_ordered(tmp_path: Path) -> None:
    document = make_document((JAX,))
    first(document).update(framework="stdlib", version="3.11 of today")
    assert read_document(spool_document(tmp_path, document)) == document
