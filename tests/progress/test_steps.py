"""Tests of the steps of a compilation: their events, their dumps, and the stop after a step."""

from __future__ import annotations

import pytest

from farrier.errors import UsageError
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.progress import StageFinished, StageStarted
from farrier.progress.steps import Dump, Steps, StoppedError
from tests.ir.test_dumps import decoder

GRAPH = parse_ir(
    """\
@graph
def g(x: f32[3]):
    y: f32[3] = Neg(x)
    return y
"""
)
FORM = ["prepare", "optimize", "partition", "space", "schedule"]
KERNELS = ["lower", "codegen"]


def told(events):
    return [
        (type(event) is StageStarted, event.stage)
        for event in events
        if isinstance(event, StageStarted | StageFinished)
    ]


def test_a_step_is_told_timed_and_dumped(tmp_path):
    events = []
    steps = Steps(events.append, Dump(tmp_path))
    for part in ("", "-hot0"):
        steps.part = part
        with steps("optimize") as step:
            assert step.is_read
            assert step.done(GRAPH) is GRAPH
    assert told(events) == [(True, "optimize"), (False, "optimize")] * 2
    assert steps.seconds["optimize"] == sum(e.seconds for e in events if type(e) is StageFinished)
    assert (tmp_path / "2-optimize.ir").read_text() == print_ir(GRAPH)
    assert (tmp_path / "2-optimize-hot0.ir").read_text() == print_ir(GRAPH)


def test_a_step_that_fails_is_not_told_as_finished(tmp_path):
    events = []
    steps = Steps(events.append, Dump(tmp_path))
    with pytest.raises(UsageError, match="no"), steps("import"):
        raise UsageError("no")
    assert told(events) == [(True, "import")]
    assert not steps.seconds
    assert not list(tmp_path.iterdir())


def test_the_last_step_wished_for_stops():
    steps = Steps(lambda _: None, Dump(until="prepare"))
    with steps("import") as step:
        assert not step.is_read
    with pytest.raises(StoppedError, match="after prepare") as stopped, steps("prepare") as step:
        assert step.is_read
    assert stopped.value.stage == "prepare"


@pytest.mark.parametrize("hot", [(), ({"batch": 1, "seq": 16}, {"batch": 2, "seq": 7})])
def test_every_form_of_a_model_takes_the_same_steps(hot, tmp_path):
    """And the kernels of all of them are lowered and compiled at once; to read them changes
    nothing."""
    shapes = {"ids": ("batch:1..4", "seq:1..64")}
    options = CompileOptions("x86-64-v3", shapes=shapes, hot=hot, threads=2, verify=False)
    events = []
    artifact = compile_model(decoder(), options, listener=events.append)
    stages = ["import", *FORM, *["import", *FORM] * len(hot), *KERNELS, "link"]
    assert told(events) == [(starts, stage) for stage in stages for starts in (True, False)]
    read = compile_model(decoder(), options, dump=Dump(tmp_path))
    assert read.manifest == artifact.manifest  # The manifest has the digest of the library.
