"""Candidates on this machine: timed, checked, and every way to fail is a result."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Load, MemoryScope, Var
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Store
from farrier.ir.types import DType, Layout, TensorType
from farrier.lower.program import to_program
from farrier.measure import BatchBuilder, TaskMeasurer
from farrier.partition.task import Task
from farrier.progress import TrialsMeasured
from farrier.records import MemoryRecords, RuleId
from farrier.schedule import Schedule
from farrier.schedule_search import TuningTask, tune
from farrier.schedule_search.trial import DeviceFaultError
from farrier.space import Estimate, Knob, Space
from farrier.targets import host
from farrier.targets.cpu.codegen.batch import compile_functions
from farrier.targets.cpu.rules import for_program
from farrier_device.measurement import DeviceFault, MeasureResult, Role, Status, TimingPolicy
from tests.lowering import final_loops

POLICY = TimingPolicy(threads=2, min_time_s=0.001, max_repeats=10, timeout_s=5, max_drift=1e9)


@pytest.fixture
def measurer(subject, device):
    tasks = {subject.task.key: subject.task}
    return TaskMeasurer(tasks, subject.target, device.runner, device.blobs, POLICY)


def sample(space, count, seed=0):
    rows = space.candidates()
    picked = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [space.decisions(row) for row in rows[picked]]


def test_candidates_are_right_and_timed(subject, measurer):
    batch = sample(subject.space, 12)
    results = measurer.measure(subject.task.key, subject.space, batch)
    assert [result.status for result in results] == [Status.OK] * 12
    assert all(0 < result.undisturbed_ns < 1e8 for result in results)
    assert all(result.max_error is not None and result.max_error < 1e-5 for result in results)


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16, DType.I32, DType.F16])
def test_what_fills_up_a_block_may_hold_anything_in_any_dtype(device, dtype):
    layout = Layout.blocked(4, 1, host().lanes)
    kinds = [TensorType(kind, (1, 20, 5, 7), layout) for kind in (DType.F32, DType.F32, dtype)]
    x, h, y = (Value(name, kind) for name, kind in zip("xhy", kinds, strict=True))
    cast = Node("Cast", (h,), (y,), attributes(to=dtype.value))
    region = Graph("cosine", (x,), (), (Node("Cos", (x,), (h,)), cast), (y,))
    task = Task("b1" * 32, "cosine", region, frozenset())
    space = for_program(to_program(region, task.symbol, frozenset()), host(), 2)
    measurer = TaskMeasurer({task.key: task}, host(), device.runner, device.blobs, POLICY)
    batch = sample(space, 4)
    results = measurer.measure(task.key, space, batch)
    assert [result.status for result in results] == [Status.OK] * len(batch), results


def test_a_batch_holds_what_the_device_needs(subject, device):
    builder = BatchBuilder(subject.task, subject.target, device.blobs, POLICY)
    first, second = sample(subject.space, 2)
    batch = builder.build(subject.space, [first, second, first])
    assert batch.request is not None
    assert batch.places == (0, 1, 2)
    symbols = [candidate.name for candidate in batch.request.candidates]
    assert symbols[0] == symbols[2] != symbols[1]
    for candidate in batch.request.candidates:
        weights = candidate.args[1]
        assert weights.cold
        assert weights.role is Role.SCRATCH
        assert candidate.prepare
        assert candidate.args[3].expected is not None
    for blob in batch.request.blobs():
        assert device.blobs.path(blob).exists()


class Sabotage:
    """A space with one knob, whose candidates are not what they should be."""

    def __init__(self, subject):
        self.subject = subject
        self.kinds = ("right", "wrong", "wild", "endless", "unschedulable", "no such code")

    @property
    def space(self):
        sabotaged = Space(
            RuleId("sabotage", 1),
            (Knob("kind", tuple(range(len(self.kinds)))),),
            lambda columns: columns["kind"] >= 0,
            lambda columns: Estimate(1e-6 + 0.0 * columns["kind"], {}),
            lambda decisions: decisions,
        )
        sabotaged.schedule = lambda decisions: Schedule(
            self.function(self.kinds[decisions["kind"]])
        )
        return sabotaged

    def function(self, kind):
        right = final_loops(self.subject.space, self.subject.space.default())
        out = right.params[-1]
        zero = Const(0.0, DType.F32)
        first = tuple(Const(0, DType.I64) for _ in out.shape)
        far = (*first[:-1], Const(1 << 40, DType.I64))
        match kind:
            case "right":
                return right
            case "wrong":
                value = Binary(BinaryOp.ADD, Load(out, first), Const(7.0, DType.F32))
                body = Store(out, first, value)
            case "wild":
                body = Store(out, far, zero)
            case "endless":
                spin = For("j", 1 << 40, LoopKind.SERIAL, Store(out, first, zero))
                body = For("i", 1 << 40, LoopKind.SERIAL, spin)
            case "unschedulable":
                raise CompilerError("refused, for the test")
            case _:  # Only the running code decides the register's number.
                tile = Buffer("tile", DType.F32, (8,), None, MemoryScope.REGISTER)
                filled = Store(tile, (Var("i"),), zero)
                read = Store(out, first, Load(tile, (Var("i"),)))
                body = Alloc(tile, For("i", 8, LoopKind.SERIAL, Block((filled, read))))
        return Function(right.name, right.params, body)


def test_every_way_to_fail_is_a_result(subject, device):
    policy = dataclasses.replace(POLICY, timeout_s=1.0)
    tasks = {subject.task.key: subject.task}
    measurer = TaskMeasurer(tasks, subject.target, device.runner, device.blobs, policy)
    sabotage = Sabotage(subject)
    wanted = {
        "right": Status.OK,
        "wrong": Status.WRONG,
        "wild": Status.CRASHED,
        "endless": Status.TIMEOUT,
        "unschedulable": Status.REJECTED,
        "no such code": Status.REJECTED,
    }
    batch = [{"kind": i} for i in range(len(sabotage.kinds))]
    results = measurer.measure(subject.task.key, sabotage.space, batch)
    assert dict(zip(sabotage.kinds, (r.status for r in results), strict=True)) == wanted
    assert all(result.message for result in results[1:])


def test_a_batch_of_nothing_but_failures_needs_no_device(subject, device):
    class NoDevice:
        devices = None

        def measure(self, request, blobs, cancelled=None):
            raise AssertionError("there is nothing to measure")

        def close(self):
            pass

    tasks = {subject.task.key: subject.task}
    measurer = TaskMeasurer(tasks, subject.target, NoDevice(), device.blobs, POLICY)
    results = measurer.measure(subject.task.key, Sabotage(subject).space, [{"kind": 4}] * 2)
    assert [result.status for result in results] == [Status.REJECTED] * 2


def test_a_fault_of_the_device_is_not_a_result(subject, device):
    class Drifting:
        devices = None

        def measure(self, request, blobs, cancelled=None):
            return MeasureResult(fault=DeviceFault.DRIFTED, message="by 40%")

        def close(self):
            pass

    tasks = {subject.task.key: subject.task}
    measurer = TaskMeasurer(tasks, subject.target, Drifting(), device.blobs, POLICY)
    with pytest.raises(DeviceFaultError, match="by 40%"):
        measurer.measure(subject.task.key, subject.space, sample(subject.space, 1))


def test_tuning_on_this_machine_end_to_end(subject, measurer):
    events, records = [], MemoryRecords()
    task = TuningTask(subject.task.key, subject.task.name, subject.space)
    best = tune(
        [task],
        subject.target.fingerprint,
        measurer,
        records,
        trials=32,
        threads=2,
        listener=events.append,
    )
    assert all(map(subject.space.contains, best[subject.task.key]))
    assert len(records) == 32
    assert {record.status for record in records} == {Status.OK}
    assert [type(event) for event in events] == [TrialsMeasured] * 2


def test_the_reference_kernel_takes_its_time(subject, device):
    from farrier.measure.drift import drift_candidate, drift_object

    assert drift_object(subject.target) is drift_object(subject.target)
    batch = BatchBuilder(subject.task, subject.target, device.blobs, POLICY).build(
        subject.space, [subject.space.default()]
    )
    assert batch.request is not None
    assert batch.request.reference == drift_candidate(subject.target, device.blobs)
    alone = dataclasses.replace(
        batch.request, candidates=(drift_candidate(subject.target, device.blobs),), reference=None
    )
    result = device.runner.measure(alone, device.blobs)
    assert result.fault is None
    assert 2e3 < result.results[0].undisturbed_ns < 1e6


def test_kernels_that_do_not_compile_do_not_spoil_the_others(subject, measurer):
    broken = Sabotage(subject).function("no such code")
    with pytest.raises(CompilerError):
        compile_functions([broken], subject.target)
    results = measurer.measure(
        subject.task.key, Sabotage(subject).space, [{"kind": 5}, {"kind": 0}]
    )
    assert [result.status for result in results] == [Status.REJECTED, Status.OK]


def test_nobody_computes_aside_while_this_machine_measures(subject, device):
    measuring, go_on = threading.Event(), threading.Event()

    class Waiting:
        devices = None

        def measure(self, request, blobs, cancelled=None):
            measuring.set()
            assert go_on.wait(60)
            return MeasureResult(fault=DeviceFault.LOST)

    tasks = {subject.task.key: subject.task}
    measurer = TaskMeasurer(tasks, subject.target, Waiting(), device.blobs, POLICY)
    batch = sample(subject.space, 1)
    order = []

    def measure():
        with contextlib.suppress(DeviceFaultError):
            measurer.measure(subject.task.key, subject.space, batch)
        order.append("measured")

    def compute():
        with measurer.aside():
            order.append("computed")

    with ThreadPoolExecutor(2) as pool:
        pool.submit(measure)
        assert measuring.wait(60)
        computing = pool.submit(compute)
        with pytest.raises(TimeoutError):
            computing.result(0.1)
        go_on.set()
    assert sorted(order) == ["computed", "measured"]
    assert measurer.devices is None


def test_other_machines_measure_while_this_one_computes(subject, device):
    class Remote:
        devices = 3

    measurer = TaskMeasurer({}, subject.target, Remote(), device.blobs, POLICY)
    assert measurer.devices == 3
    with measurer.aside(), measurer.aside():
        pass
