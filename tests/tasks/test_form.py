"""The form of an ad-hoc comparison: rendered with help, and nonsense refused on both sides."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate
from prefect.utilities.schema_tools.validation import ValidationError as SchemaError
from pydantic import ValidationError

from benchcore.errors import UserError
from benchcore.experiments.compare import draft_comparison
from benchcore.experiments.sweep import draft_sweep
from benchcore.names import name_case_in_words
from benchcore.planning.catalog import count_devices
from benchcore.planning.requests import Placement, parse_arm
from benchcore.running.sites import list_sites
from benchcore.running.slurm.allocation import Allocation
from flows.backfill import backfill
from flows.cli.backfill import backfill as backfill_command
from flows.compare import compare
from flows.sweep import sweep
from tasks.form import Comparison, Side, Sweep, add_versions

QUESTION: dict[str, Any] = {"workload": "mlp", "use_case": "infer", "batch": "128"}
SCHEMA = parameter_schema(compare).model_dump(exclude_unset=True)
CURVE = {**QUESTION, "batch": "any", "varied": "batch", "values": ["1", "128"]}
SWEEP_SCHEMA = parameter_schema(sweep).model_dump(exclude_unset=True)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"workload": "faulty"},
        {"workload": "../../etc/passwd"},
        {"workload": None},
        {"use_case": "infer'; DROP TABLE duel; --"},
        {"batch": "3; reboot"},
        {"batch": 128},
        {"precision": "<script>alert(1)</script>"},
        {"device": "cuda:99"},
        {"devices": 2},
        {"devices": "0"},
        {"devices": "3"},
        {"devices": "2; reboot"},
        {"devices": "2\n"},
        {"devices": None},
        {"track": "defects"},
        {"starts": 1},
        {"starts": "5"},
        {"max_starts": 101},
        {"compilations": 0},
        {"budget_minutes": 0},
        {"budget_minutes": float("inf")},
        {"checkpoint": "/etc/passwd"},
        {"a": {"framework": "stdlib"}},
        {"a": {"framework": "jax", "version": "0.10; rm -rf /"}},
        {"a": {"framework": "jax", "version": "system:/bin/sh"}},
        {"a": {"framework": "jax", "version": "1" * 41}},
        {"a": {"framework": "jax", "version": "../0.10"}},
        {"a": {"framework": "jax", "settings": ["compile=$(id)"]}},
        {"a": {"framework": "jax", "settings": ["defects=v1-stride"]}},
        {"a": {"framework": "jax", "python": "/bin/sh"}},
    ],
    ids=repr,
)
def test_bad_input_is_refused_by_the_server_and_by_the_flow(nonsense: dict[str, Any]) -> None:
    """The UI lets people ask the server not to validate, so the flow does, too."""
    sent = {**QUESTION, **nonsense}
    with pytest.raises(SchemaError):
        validate({"question": sent}, SCHEMA, raise_on_error=True)
    with pytest.raises(ValidationError):
        Comparison.model_validate(sent, strict=True)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"workload": "../../etc/passwd"},
        {"varied": "precision"},
        {"varied": "batch; reboot"},
        {"values": ["1"]},
        {"values": [1, 128]},
        {"values": ["1", "$(id)"]},
        {"values": ["1", "../2"]},
        {"values": ["1", "-1"]},
        {"values": [str(number) for number in range(21)]},
        {"values": "1,128"},
        {"values": None},
        {"starts": 1},
        {"budget_minutes": 0},
        {"track": "tuned"},
        {"b": {"framework": "torch", "settings": ["compile=$(id)"]}},
    ],
    ids=repr,
)
def test_bad_input_to_a_sweep_is_refused_by_the_server_and_by_the_flow(
    nonsense: dict[str, Any],
) -> None:
    sent = {**CURVE, **nonsense}
    with pytest.raises(SchemaError):
        validate({"question": sent}, SWEEP_SCHEMA, raise_on_error=True)
    with pytest.raises(ValidationError):
        Sweep.model_validate(sent, strict=True)


def test_a_sweeps_form_becomes_a_plan_with_a_duel_per_value() -> None:
    validate({"question": CURVE, "site": "local"}, SWEEP_SCHEMA, raise_on_error=True)
    request = Sweep.model_validate(CURVE, strict=True).make_request()
    plan = draft_sweep(request, Placement(campaign="x"))
    assert [duel.case for duel in plan.duels[-2:]] == ["infer_b1", "infer_b128"]
    assert (request.a, request.starts, request.budget_s) == (("jax@newest",), 3, 60)
    of_devices = {"workload": "mnist_cnn", "use_case": "train", "batch": "32", "varied": "devices"}
    request = Sweep.model_validate({**CURVE, **of_devices, "values": ["1", "2"]}).make_request()
    assert [each.case for each in draft_sweep(request).duels[-2:]] == ["train_b32", "train_b32_x2"]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"values": ["1", "base"]}, "wanted numbers as values of batch, got '1, base'"),
        ({"values": ["1", "1"]}, "wanted 2 to 20 different values of batch, got '1, 1'"),
        ({"varied": "size", "values": ["base", "huge"]}, "size 'base', but none matches"),
    ],
)
def test_a_sweep_refused_by_our_own_checks_is_explained(sent: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        draft_sweep(Sweep.model_validate({**CURVE, **sent}).make_request())


def test_a_line_end_that_the_servers_pattern_overlooks_is_refused_by_the_flow() -> None:
    side = {"framework": "jax", "version": "newest\n"}
    with pytest.raises(ValidationError, match="pattern"):
        Comparison.model_validate({**QUESTION, "a": side})


def test_every_choice_of_the_form_can_be_planned() -> None:
    validate({"question": QUESTION, "site": "local"}, SCHEMA, raise_on_error=True)
    question = Comparison.model_validate(QUESTION, strict=True).make_request()
    assert (question.a, question.b) == (("jax@newest",), ("torch@newest",))
    assert (question.case_filter.batch, question.case_filter.precision) == (128, "fp32_ieee")
    side = {"framework": "torch", "version": "2.15.0", "settings": ["compile=none"]}
    sent = Comparison.model_validate({**QUESTION, "b": side, "starts": 30})
    assert sent.make_request().b == ("torch==2.15.0", "compile=none")
    assert sent.make_request().max_starts == 30
    assert (sent.make_request().compilations, question.compilations) == (5, 5)
    alone = Comparison.model_validate({**QUESTION, "compilations": 1})
    assert alone.make_request().compilations == 1
    settings = SCHEMA["definitions"]["Side"]["properties"]["settings"]["items"]["enum"]
    for framework, own in (("torch", "compile="), ("jax", "donate=")):
        for setting in (each for each in settings if each.startswith(own)):
            assert parse_arm(f"{framework},{setting}").settings != parse_arm(framework).settings
    assert SCHEMA["properties"]["site"]["enum"] == list_sites()


def test_the_form_lists_built_versions_and_accepts_any_published_one() -> None:
    offered = add_versions(SCHEMA, {"jax": ["0.12.0", "0.11.0"], "torch": []})
    ways = offered["definitions"]["Side"]["properties"]["version"]["anyOf"]
    assert {way["title"]: way.get("enum") for way in ways} == {
        "By name": ["newest", "previous"],
        "JAX built here": ["0.12.0", "0.11.0"],
        "Any published": None,
    }
    for version in ("newest", "0.12.0", "0.4.1rc1"):
        sent = {**QUESTION, "a": {"framework": "jax", "version": version}}
        validate({"question": sent}, offered, raise_on_error=True)
    with pytest.raises(SchemaError):
        sent = {**QUESTION, "a": {"framework": "jax", "version": "0.12.0; reboot"}}
        validate({"question": sent}, offered, raise_on_error=True)
    assert add_versions(offered, {}) == SCHEMA
    assert add_versions({"properties": {}}, {"jax": ["0.12.0"]}) == {"properties": {}}


def test_fields_keep_their_order_in_a_database_that_forgets_it() -> None:
    for model, schema in ((Comparison, SCHEMA), (Side, SCHEMA), (Sweep, SWEEP_SCHEMA)):
        fields = schema["definitions"][model.__name__]["properties"]
        assert sorted(fields, key=lambda name: fields[name]["position"]) == list(model.model_fields)


def test_every_field_has_a_title_and_a_help_text() -> None:
    for schema, models in ((SCHEMA, ("Comparison", "Side")), (SWEEP_SCHEMA, ("Sweep", "Side"))):
        for model in models:
            for name, field in schema["definitions"][model]["properties"].items():
                assert field["title"] and field["description"], name
        assert all(field["description"] for field in schema["properties"].values())


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"track": "tuned", "b": {"framework": "torch", "settings": ["compile=none"]}}, "no setti"),
        ({"a": {"framework": "jax", "settings": ["compile=none"]}}, "compile=jit"),
        ({"batch": "any"}, "match: "),
        ({"devices": "2"}, "devices '2', but none matches"),
    ],
)
def test_input_refused_by_our_own_checks_is_explained_in_one_paragraph(
    sent: dict[str, Any], words: str
) -> None:
    question = Comparison.model_validate({**QUESTION, **sent}).make_request()
    with pytest.raises(UserError, match=words) as refusal:
        draft_comparison(question, Placement(campaign="x"))
    assert "\n" not in str(refusal.value)


def test_devices_reach_the_plan_the_slurm_job_and_the_page() -> None:
    shape = {"workload": "mnist_cnn", "use_case": "train", "batch": "32", "device": "cuda"}
    names = SCHEMA["definitions"]["Comparison"]["properties"]["devices"]
    assert names["enum"] == ["1", "2", "4"]
    for devices, case in (("1", "train_b32"), ("2", "train_b32_x2"), ("4", "train_b32_x4")):
        sent = {**shape, "devices": devices}
        validate({"question": sent}, SCHEMA, raise_on_error=True)
        request = Comparison.model_validate(sent, strict=True).make_request()
        duel = draft_comparison(request, Placement(campaign="x")).duels[0]
        assert (duel.case, count_devices(duel.workload, duel.case)) == (case, int(devices))
        named = {"workload": "mnist_cnn", "case_name": case, "use_case": "train"}
        words = name_case_in_words({**named, "batch": 32, "precision": "fp32_ieee"})
        assert words.endswith("fp32" if devices == "1" else f"on {devices} devices")
        assert Allocation(partition="h100", gpus=1).with_devices(int(devices)).gpus == int(devices)


def test_a_backfill_measures_as_many_versions_from_the_form_as_from_the_command() -> None:
    versions = parameter_schema(backfill).model_dump()["properties"]["versions"]
    command = inspect.signature(backfill_command).parameters["versions"]
    option = typer.main.get_params_from_function(backfill_command)["versions"].default
    assert versions["default"] == command.default == 8
    assert (versions["minimum"], versions["maximum"]) == (2, 30)
    assert (option.min, option.max) == (2, 30)
