import math

import pandas as pd
import pytest
from sample_frames import of_campaign, sample_frames
from sample_nights import nightly_campaign

from benchcore.names import contender_label
from benchcore.store.metrics import METRICS
from dashboards.formatting import (
    case_label,
    describe_ratio,
    format_amounts,
    format_bytes,
    format_changes,
    format_count,
    format_factor,
    format_ns,
    format_rate,
    format_seconds,
    format_share,
    format_size,
    format_speedup,
)
from dashboards.frames import is_fair, to_rows
from dashboards.listings.tables import (
    describe_length,
    describe_ratio_row,
    describe_weights,
    list_contenders,
    list_costs,
    measured_costs,
)
from dashboards.website.campaign.news import write_run_headline
from flows.cli.report import print_costs

NAN = math.nan
PAIR = {
    "workload": "mlp",
    "case_name": "train_b128",
    "a_framework": "jax",
    "a_version": "0.12.0.1",
    "a_arm": "jax-jit",
    "b_framework": "torch",
    "b_version": "2.15.0",
    "b_arm": "torch-compile",
    "log_ratio": math.log(1.42),
    "low": math.log(1.38),
    "high": math.log(1.47),
    "verdict": "different",
    "scope": "this node, over 3 compilations",
}


def _describe_ratios(ratios: pd.DataFrame) -> list[dict[str, str]]:
    return [describe_ratio_row(row) for row in ratios.to_dict("records")]


@pytest.mark.parametrize(
    ("middle", "low", "high", "text"),
    [
        (1.42, 1.38, 1.47, "1.42x (1.38 to 1.47)"),
        (1.4213, 1.4201, 1.4225, "1.421x (1.420 to 1.423)"),
        (2.3, 1.9, 2.7, "2.3x (1.9 to 2.7)"),
        (30.0, 12.0, 75.0, "30x (12 to 75)"),
        (1.021, 1.004, 1.038, "1.021x (1.004 to 1.038)"),
    ],
)
def test_speedups_have_the_digits_their_interval_justifies(
    middle: float, low: float, high: float, text: str
) -> None:
    assert format_speedup(math.log(middle), math.log(low), math.log(high)) == text


@pytest.mark.parametrize(
    ("middle", "low", "high", "text"),
    [
        (1.37, 0.997, 1.882, "1.4x"),  # with its interval it reads 1.370x (0.997 to 1.882)
        (0.0713, 0.065, 0.077, "0.071x"),
        (17.2, 15.0, 19.7, "17x"),
        (0.19, 0.001, 28, "0.2x"),
        (23.456, None, None, "23.5x"),
    ],
)
def test_a_speedup_alone_has_no_more_digits_than_its_interval_justifies(
    middle: float, low: float | None, high: float | None, text: str
) -> None:
    low, high = (NAN if each is None else math.log(each) for each in (low, high))
    assert format_size(math.log(middle), low, high) == text


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (1.04, 1.064, ("+5 %", "+4 % to +6 %")),
        (1.0508, 1.0532, ("+5.2 %", "+5.1 % to +5.3 %")),
        (0.6, 1.8, ("+5 %", "\u221240 % to +80 %")),
        (1.001, 1.11, ("+5.2 %", "+0.1 % to +11.0 %")),  # not +0 %: this end decides
        (None, None, ("+5.2 %", "")),
    ],
)
def test_a_change_has_the_digits_that_its_interval_justifies(
    low: float | None, high: float | None, texts: tuple[str, str]
) -> None:
    assert format_changes(1.052, low, high) == texts


def test_no_change_has_no_sign() -> None:
    assert format_changes(0.998, 0.98, 1.02) == ("0 %", "\u22122 % to +2 %")
    assert format_amounts(1.09, 1.08, 1.10) == ("1.09x", "1.08x to 1.10x")
    assert format_amounts(1.0912, None, None) == ("1.09x", "")


def test_a_missing_number_is_reported_as_missing() -> None:
    assert format_speedup(NAN, NAN, NAN) == "not measured"
    assert format_speedup(0.1, NAN, NAN) == "1.11x (interval not measured)"
    assert format_speedup(0.1, -math.inf, math.inf) == "1.11x (interval not measured)"
    for words in (format_ns, format_seconds, format_bytes):
        assert words(NAN) == words(None) == "not measured"
    assert format_share(None, 10.0) == format_share(1.0, 0.0) == "not measured"


def test_durations_and_sizes_have_three_digits_and_a_unit() -> None:
    assert format_ns(312_000) == "312 \u00b5s"
    assert format_ns(412.4e6) == "412 ms"
    assert format_ns(999.7e3) == "1.00 ms"
    assert format_ns(0) == "0 ns"
    assert format_seconds(14.23) == "14.2 s"
    assert format_seconds(2520) == "42 min"
    assert format_seconds(9000) == "2 h 30 min"
    assert format_bytes(610e6) == "582 MiB"
    assert format_bytes(999.4 * 2**20) == "999 MiB"
    assert format_bytes(999.6 * 2**20) == "1,000 MiB"
    assert format_bytes(3 * 2**30) == "3,072 MiB", "in the unit of the row above it"
    assert format_count(0, "pair") == "no pair"
    assert format_count(2, "pair") == "2 pairs"


def test_contenders_are_named_with_the_arm_that_distinguishes_them() -> None:
    assert contender_label("torch", "2.15.0", "torch-compile") == "PyTorch 2.15.0 compiled"
    assert contender_label("torch", "2.15.0", "torch-eager") == "PyTorch 2.15.0 eager"
    assert contender_label("jax", "0.12.0.1", "jax-jit") == "JAX 0.12.0.1"
    assert contender_label("jax", None, "jax-pallas") == "JAX pallas"
    assert case_label(PAIR | {"track": "tuned"}) == "mlp train_b128 (tuned)"


def test_the_faster_side_is_the_subject() -> None:
    assert describe_ratio(PAIR) == (
        "JAX 0.12.0.1 is 1.42x (1.38 to 1.47) as fast as PyTorch 2.15.0 compiled on mlp train_b128"
    )
    slower = PAIR | {
        "log_ratio": -math.log(1.42),
        "low": -math.log(1.47),
        "high": -math.log(1.38),
    }
    assert describe_ratio(slower) == (
        "PyTorch 2.15.0 compiled is 1.42x (1.38 to 1.47) as fast as JAX 0.12.0.1 on mlp train_b128"
    )


def test_same_and_unknown_never_read_as_a_win() -> None:
    assert "are equally fast on mlp train_b128: 1.42x" in describe_ratio(PAIR | {"verdict": "same"})
    unknown = describe_ratio(PAIR | {"verdict": "unknown", "low": NAN, "high": NAN})
    assert "is unknown: measured JAX 0.12.0.1 1.42x (interval not measured) as fast" in unknown
    assert "not measured" in describe_ratio(PAIR | {"log_ratio": NAN})


def test_the_headline_takes_the_compiled_arm_where_it_counts() -> None:
    ratios = of_campaign(sample_frames().ratios, nightly_campaign(0))
    text = write_run_headline(to_rows(ratios))
    assert text.startswith("On this machine, JAX 0.12.0.1 is 1.3")
    assert text.endswith("as fast as PyTorch 2.15.0 compiled on MLP, training, batch 128, fp32.")


def test_the_headline_also_states_where_the_other_is_ahead() -> None:
    ratios = of_campaign(sample_frames().ratios, nightly_campaign(0))
    turned = ratios.assign(verdict="different", counts=True)
    other = turned["workload"] != "mlp"
    turned.loc[other, ["log_ratio", "low", "high"]] = [-0.4, -0.5, -0.3]
    text = write_run_headline(to_rows(turned))
    assert text.endswith(", and PyTorch is faster on ResNet-50, inference, batch 4, fp32."), text


def test_the_headline_states_that_only_eager_counts() -> None:
    ratios = of_campaign(sample_frames().ratios, nightly_campaign(0))
    eager_only = ratios.assign(counts=ratios["b_arm"] == "torch-eager")
    text = write_run_headline(to_rows(eager_only))
    assert "PyTorch 2.15.0 eager on MLP, training, batch 128, fp32" in text
    assert text.endswith("; the fair pair, PyTorch compiled, does not count.")


def test_metrics_without_a_measurement_have_no_column() -> None:
    frames = sample_frames(num_nights=1)
    lacking = measured_costs(list_costs(frames.contenders))
    assert "planned_bytes" in lacking
    assert not {"allocator_peak_bytes", "gross_mj", "net_mj"} & set(lacking)
    rows = frames.contenders.to_dict("records")
    one = frames.contenders.index[[bool(row["num_blocks"]) for row in rows].index(True)]
    metered = frames.contenders.astype({"gross_mj": "float64"})
    metered.loc[one, "gross_mj"] = 3.0
    assert "gross_mj" in measured_costs(list_costs(metered))


def test_throughput_and_compilation_with_empty_and_with_filled_caches_are_reported() -> None:
    frames = sample_frames(num_nights=1)
    rows = {(row["case"], row["name"]): row for row in list_contenders(frames.contenders)}
    jax = rows["mlp train_b128", "jax-jit-0.12.0.1"]
    (step_ns,) = (
        row["median_step_ns"]
        for row in frames.contenders.to_dict("records")
        if (row["case_name"], row["name"]) == ("train_b128", "jax-jit-0.12.0.1")
    )
    rate = 128 * 1e9 / step_ns
    assert jax["rate"] == format_rate(rate)
    assert jax["compile"] == "840 ms, then 110 ms"
    assert rows["mlp train_b128", "torch-eager-2.15.0"]["compile"] == "none: eager"
    assert {row["rate"] for row in rows.values() if row["status"] == "crash"} == {"not measured"}
    assert [format_rate(each) for each in (7.25, 61_234.0)] == ["7.25", "61.2k"]


def test_an_unmeasured_step_is_never_zero() -> None:
    frames = sample_frames(num_nights=1)
    rows = list_contenders(frames.contenders)
    crashed = [row for row in rows if row["status"] == "crash"]
    assert [row["step"] for row in crashed] == ["not measured"]
    unknown = frames.contenders.assign(process_peak_bytes=pd.array([pd.NA] * 14, dtype="Int64"))
    assert {row["process_peak_bytes"] for row in list_costs(unknown)} == {"not measured"}
    costs = {(row["case"], row["name"]): row for row in list_costs(frames.contenders)}
    assert {row["degraded"] for row in rows} == {"2 of 30", "not measured"}
    jax = costs["mlp train_b128", "jax-jit-0.12.0.1"]
    assert jax["host_boundness"] == "1.04x"
    assert (jax["planned_bytes"], jax["allocator_peak_bytes"]) == ("114 MiB", "not measured")
    assert jax["gross_mj"] == jax["net_mj"] == "not measured"
    assert not [name for _, name in costs if name == crashed[0]["name"]]
    assert describe_length(frames.contenders) == (
        "2 duels ended when the interval of every pair was narrow enough; 1 duel ended when its "
        "time was spent"
    )
    older = frames.contenders.assign(stopped_by=None)
    assert describe_length(older) == "a fixed number of starts"


def test_a_wide_interval_makes_no_speedup_zero() -> None:
    assert format_speedup(math.log(0.19), math.log(0.001), math.log(28)) == "0.2x (0.0 to 28.0)"


def test_one_start_is_shown_without_an_interval_everywhere() -> None:
    row = PAIR | {"verdict": "unknown", "scope": "this start", "low": NAN, "high": NAN}
    assert describe_ratio(row).endswith(" in a single start, no interval")
    turned = row | {"log_ratio": -row["log_ratio"]}
    fast, slow = (describe_ratio(each).partition(" was ")[0] for each in (row, turned))
    assert fast != slow
    frames = sample_frames(num_nights=1)
    (wording,) = {
        row["starts"] for row in _describe_ratios(frames.ratios) if row["starts"][0] == "1"
    }
    assert wording == "1 (single start, no interval)"
    none = frames.ratios.head(1).assign(num_starts=0, scope="this start")
    assert _describe_ratios(none)[0]["starts"] == "0"


def test_the_table_of_ratios_says_over_how_many_compilations_an_interval_is() -> None:
    frame = sample_frames(num_nights=1).ratios.head(1).assign(num_starts=5)
    for scope in ("this node, over 3 compilations", "this node, within one compilation"):
        assert _describe_ratios(frame.assign(scope=scope))[0]["starts"] == f"5 ({scope})"


@pytest.mark.parametrize(("log_ratio", "faster"), [(0.1, "eager"), (-0.1, "compiled")])
def test_the_faster_of_two_settings_is_named_by_its_setting(log_ratio: float, faster: str) -> None:
    frame = sample_frames(num_nights=1).ratios.head(1)
    eager = {"a_framework": "torch", "a_version": "2.15.0", "a_arm": "torch-eager"}
    other = {"b_framework": "torch", "b_version": "2.15.0", "b_arm": "torch-compile"}
    row = {**eager, **other, "kind": "cross_setting", "verdict": "different"}
    (shown,) = _describe_ratios(frame.assign(**row, log_ratio=log_ratio))
    assert shown["direction"] == f"PyTorch 2.15.0 {faster} faster"


@pytest.mark.parametrize(
    ("parity", "words"),
    [
        ({"fair": None}, "parity is unknown"),
        ({"fair": True}, "same settings"),
        (
            {"fair": True, "differences": [["layout", "NHWC", "NCHW"]]},
            "same settings except: layout NHWC here, NCHW there",
        ),
        (
            {"fair": False, "differences": [["compiled", "yes", "no"], ["graphs", "on", "off"]]},
            "not a fair pair: compiled yes here, no there; graphs on here, off there",
        ),
        (
            {"fair": False, "differences": [["threads", "2", "1"]], "violations": ["threads ..."]},
            "void: threads 2 here, 1 there",
        ),
        (
            {"fair": False, "violations": ["compiled of torch reads 'no', where its arm ..."]},
            "void: compiled of torch reads 'no', where its arm ...",
        ),
    ],
)
def test_each_pair_reports_its_parity(parity: dict[str, object], words: str) -> None:
    ratios = of_campaign(sample_frames(num_nights=1).ratios, nightly_campaign(0)).head(1)
    columns = {"fair": True, "differences": [], "violations": [], **parity}
    changed = ratios.assign(**{name: [value] for name, value in columns.items()})
    assert [row["parity"] for row in _describe_ratios(changed)] == [words]


def test_a_pair_is_fair_by_its_manifest_and_not_by_its_name() -> None:
    pair = {"b_arm": "torch-compile", "fair": True, "violations": []}
    assert is_fair(pair)
    assert not is_fair({**pair, "fair": False})
    assert is_fair({**pair, "b_arm": "torch-compile-max-autotune-cudnn-benchmark"})
    assert is_fair({**pair, "fair": None})
    assert is_fair({**pair, "fair": False, "violations": ["threads"]})
    assert not is_fair({**pair, "fair": None, "b_arm": "torch-eager"})


@pytest.mark.parametrize(
    ("unsteady", "wording"),
    [(0, ""), (math.nan, ""), (1, "not steady in 1 of 3 starts")],
)
def test_an_unsteady_contender_is_reported(unsteady: float, wording: str) -> None:
    frames = sample_frames(num_nights=1)
    contenders = frames.contenders.assign(num_unsteady=unsteady, num_starts=3)
    assert {row["unsteady"] for row in list_contenders(contenders)} == {wording}


@pytest.mark.parametrize(("unsteady", "expected"), [(1, True), (0, False), (None, False)])
def test_a_report_names_unsteady_contenders(
    unsteady: int | None, expected: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    row = dict.fromkeys(each.key for each in METRICS) | {"case": "mlp train_b128", "name": "jax"}
    print_costs([row | {"num_unsteady": unsteady, "num_starts": 3}])
    assert ("not steady in 1 of 3 starts" in capsys.readouterr().out) == expected


def test_a_report_prints_mean_deviation_and_both_ends_of_latency(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = dict.fromkeys(each.key for each in METRICS) | {"case": "mlp train_b128", "name": "jax"}
    row |= {"num_unsteady": 0, "num_starts": 3}
    row |= {f"latency_{each}_ns": n * 1e6 for n, each in enumerate(("mean", "sd", "min", "max"), 2)}
    print_costs([row])
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    printed = {name.strip(): value.strip() for name, _, value in (e.partition("│") for e in lines)}
    found = [printed.get(f"latency, {each}") for each in ("mean", "sd", "min", "max")]
    assert found == ["2.00 ms", "3.00 ms", "4.00 ms", "5.00 ms"]


def test_a_report_names_in_one_line_what_no_contender_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = dict.fromkeys(each.key for each in METRICS) | {"case": "mlp train_b128", "name": "jax"}
    row |= {"num_unsteady": 0, "num_starts": 3}
    print_costs([row | {"median_step_ns": 2e6}, row | {"name": "torch", "warm_compile_s": 0.2}])
    table, _, line = capsys.readouterr().out.partition("Not measured: ")
    assert "2.00 ms" in table and "200 ms" in table and table.count("not measured") == 2
    assert "latency, p95; " in line and "step time" not in line.split("; ")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0449, "1.04x"),
        (16.34, "16.3x"),
        (364.99, "365x"),
        (0.0042, "0.004x"),
        (0.0, "0.00x"),
        (None, "not measured"),
    ],
)
def test_a_factor_has_three_digits(factor: float | None, expected: str) -> None:
    assert format_factor(factor) == expected


def test_the_checkpoint_is_named_in_full() -> None:
    frames = sample_frames(num_nights=1)
    assert describe_weights(frames.contenders) == "seeded"
    given = frames.contenders.copy()
    given.loc[given.index[:2], ["case_name", "checkpoint"]] = ["infer_b1+cccccccccccc", "c" * 64]
    file = f"of the file with SHA-256 {'c' * 64}"
    assert describe_weights(given) == f"infer_b1+cccccccccccc: {file}; all others: seeded"
