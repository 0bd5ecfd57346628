"""`python -m bench`: a small run end to end, the figures that follow from figures, bad words."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import plot
from bench.measure import FLOAT_FORM, Result, ratio
from bench.report import costs_table, headline, means, summary_table
from bench.workloads import NAMES, QUANTIZED, QUICK, workload
from farrier.bench.race import Figures
from farrier.bench.roofline import Roofline
from farrier.errors import UsageError
from farrier.options.precision import Precision
from farrier.runtime.size import Size

ROOT = Path(__file__).parents[2]


def _run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _figures(label: str, *rounds_ms: float) -> Figures:
    return Figures(
        label=label,
        version="1.0",
        limited="",
        load_s=0.5,
        median_ms=statistics.median(rounds_ms),
        best_ms=min(rounds_ms),
        p10_ms=min(rounds_ms),
        p90_ms=max(rounds_ms),
        ratio=1.0,
        max_error=1e-6,
        samples=len(rounds_ms),
        rounds_ms=rounds_ms,
        peak_bytes=50 << 20,
        model_bytes=3_000_000,
        other_cores=0.1,
    )


RESULT = Result(
    model="net<1>",
    threads=2,
    precision=Precision.F32,
    size=Size(file_bytes=3_000_000, weights_bytes=2_000_000, winograd_bytes=400_000),
    compile_s={"farrier": 1.5, "farrier:tuned": 60.0},
    operations=4_000_000_000,
    arithmetic_s=0.008,
    params_bytes=20_000_000,
    roofline=Roofline(operations=500e9, bandwidth=40e9),
    figures=(
        _figures("farrier", 2.0, 4.0, 3.0),
        _figures("farrier:tuned", 1.0, 2.0, 3.0),
        _figures("slow", 40.0, 40.0, 40.0),
        _figures("fast", 4.0, 4.0, 4.0),
    ),
)


def test_ratios_are_of_rounds_that_ran_together():
    ours, tuned, _, fast = RESULT.figures
    assert ratio(ours, fast) == pytest.approx(0.75)
    assert ratio(tuned, ours) == pytest.approx(0.5)  # 0.5, 0.5, 1.0; the medians would give 2/3
    assert RESULT.best_peer is fast
    raw = RESULT.to_json()
    assert raw["best_peer"] == "fast"
    assert raw["ratios"]["farrier:tuned"] == pytest.approx({"slow": 0.05, "fast": 0.5})


def test_floors_are_operations_over_peak_and_parameters_over_bandwidth():
    assert RESULT.floors_ms() == pytest.approx((8.0, 0.5))
    assert "floors 8.00 ms" in headline(RESULT)


def test_the_size_is_over_the_weights_and_leaves_out_what_winograd_adds():
    assert RESULT.size.ratio == pytest.approx(1.3)
    headline_text = "artifact 3.00 MB: 1.30 times the 2.00 MB of weights, and 0.40 MB for Winograd;"
    assert headline_text in headline(RESULT)
    assert list(costs_table([RESULT]).columns[-1].cells) == ["1.30"]


def test_peers_that_take_less_memory_are_told():
    *others, fast = RESULT.figures
    small = dataclasses.replace(fast, peak_bytes=40 << 20)
    assert RESULT.lighter == []
    assert dataclasses.replace(RESULT, figures=(*others, small)).lighter == ["fast"]


@pytest.mark.parametrize(
    ("wrong", "agree"),
    [
        ((), True),
        (("fast",), True),  # One of the two peers differs.
        (("fast", "slow"), False),
        (("farrier:tuned",), False),
    ],
)
def test_outputs_that_differ_are_no_result(wrong, agree):
    figures = tuple(
        dataclasses.replace(figure, max_error=math.nan if figure.label in wrong else 1e-6)
        for figure in RESULT.figures
    )
    result = dataclasses.replace(RESULT, figures=figures)
    assert sorted(result.differing) == sorted(wrong)
    assert result.agree == agree


def test_a_quantized_model_may_differ_by_what_its_quantization_does():
    ours, _, slow, fast = RESULT.figures
    floats = dataclasses.replace(_figures(FLOAT_FORM, 8.0, 8.0, 8.0), max_error=0.03)
    figures = (ours, floats, dataclasses.replace(slow, max_error=0.04), fast)
    compile_s = {"farrier": 1.5, FLOAT_FORM: 1.5}
    result = dataclasses.replace(RESULT, figures=figures, compile_s=compile_s)
    assert (result.ours, result.peers, result.differing) == ([ours], [figures[2], fast], ["slow"])
    assert result.to_json()["ratios"]["farrier"][FLOAT_FORM] == pytest.approx(0.375)
    columns = {column.header: list(column.cells) for column in summary_table([result]).columns}
    assert columns[FLOAT_FORM] == ["0.375"]
    assert columns["best peer"] == ["0.750"]


def test_the_mean_over_the_best_peers_is_geometric():
    faster = dataclasses.replace(
        RESULT, figures=(_figures("farrier", 1.0), _figures("fast", 12.0)), compile_s={"farrier": 1}
    )
    lines = means([faster, RESULT])  # 1/12 and 0.75
    assert lines[0].startswith("farrier, threads 2: 0.250 of")
    assert "geometric mean of 2 models" in lines[0]
    assert lines[1].startswith("farrier:tuned, threads 2: 0.500 of")


def test_the_chart_has_a_bar_an_engine_and_cuts_what_is_far_off():
    tree = ElementTree.fromstring(plot.chart([RESULT]))
    bars = [e for e in tree.iter("{http://www.w3.org/2000/svg}rect") if e.get("x")]
    widths = [float(bar.get("width")) for bar in bars]
    assert widths == pytest.approx([260 * 3 / 4, 260 * 2 / 4, 260 * 2.5, 260])
    words = [e.text for e in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "net<1>, 2 threads" in words
    assert "10.00  (40.00 ms)" in words


@pytest.mark.long
def test_a_small_run_end_to_end(tmp_path):
    done = _run(
        *("--models", "mobilenet_v2", "--threads", "1", "--peers", "onnxruntime"),
        *("--rounds", "2", "--round-s", "0.02", "--trials", "3", "--records", tmp_path / "r.jsonl"),
        *("--json", tmp_path / "bench.json", "--svg", tmp_path / "bench.svg"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads((tmp_path / "bench.json").read_text())["results"]
    assert [figure["label"] for figure in result["figures"]] == [
        "farrier",
        "farrier:tuned",
        "onnxruntime",
    ]
    assert all(len(figure["rounds_ms"]) == 2 for figure in result["figures"])
    assert result["agree"]
    assert 0.5e9 < result["operations"] < 0.8e9  # 300 million multiply-adds, and the rest
    assert (tmp_path / "r.jsonl").read_text().count("\n") >= 3
    ElementTree.parse(tmp_path / "bench.svg")


def test_words_that_make_no_sense_end_in_a_line(tmp_path):
    done = _run("--models", "abacus")
    assert done.returncode == UsageError.exit_code
    assert "unknown model 'abacus'" in done.stdout
    done = _run("--models", "resnet18", "--peers", "slide_rule")
    assert "unknown engine 'slide_rule'" in done.stdout
    done = _run("--models", "resnet18", "--peers", "tensorrt")
    assert "tensorrt is not for the processor" in done.stdout


def test_every_name_is_a_workload():
    assert set(QUICK) <= set(NAMES)
    for names in (NAMES, QUANTIZED):
        assert [workload(name).name for name in names] == list(names)
    assert all(workload(name).float_form for name in QUANTIZED)
    assert workload("rapidocr_cls").shapes == {"x": (1, 3, 48, 192)}
