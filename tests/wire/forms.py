"""A value of every type that crosses a process or lies in a file, with its writer and reader.

No field has its default in all values of a form, so that each field is seen on the wire.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from farrier import progress
from farrier.artifact import calls, schedules
from farrier.artifact.calls import CallArgument, CallRecord
from farrier.artifact.code import CodeFile
from farrier.artifact.declaration import Declaration, DeclaredValue
from farrier.artifact.manifest import (
    Capacity,
    CountedDim,
    KernelReport,
    Manifest,
    SizeCheck,
    TensorSpec,
)
from farrier.artifact.schedules import Schedules
from farrier.artifact.signature import PublicKey, Signature
from farrier.options import CompileOptions
from farrier.options.shapes import NamedDim, Precondition
from farrier.options.states import HeldState
from farrier.progress import Event
from farrier.records import Context, TaskDefinition, TuningRecord
from farrier.records.outcome import Figures, Outcome, SetAside
from farrier.targets import parse_machine, read_target, to_text
from farrier.targets.cpu.part import CpuPart
from farrier.targets.x86 import X86Target
from farrier_device import codec, program
from farrier_device.describe import MachineDescription
from farrier_device.measurement import (
    Argument,
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Rival,
    RivalResult,
    Role,
    Status,
    Tensor,
    TimingPolicy,
    request_from_json,
    result_from_json,
    to_json,
)
from farrier_device.outbox import PendingResult
from farrier_device.program import Place, Program, program_from_json
from farrier_device.secret_file import SecretFile
from farrier_farm.storage import models


@dataclasses.dataclass(frozen=True)
class Form:
    """Values of one type, the functions that write them as text and read them back.
    The reader refuses other texts with ValueError or FarrierError."""

    values: tuple[Any, ...]
    write: Callable[[Any], str]
    read: Callable[[str], Any]


def _dumped(value: Any) -> str:
    return json.dumps(dataclasses.asdict(value))


OPTIONS = CompileOptions(
    target="rpi5",
    shapes={"x": ("batch:1..8", 3, 224)},
    typical={"batch": 4},
    hot=({"batch": 1}, {}),
    trials=1000,
    budget_s=60.5,
    threads=4,
    seed=7,
    max_layer_error=1e-5,
    verify=False,
    precision="bf16",
    cores=2,
    states={"past": "present:capacity=64"},
)

TARGET = X86Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v4",
    features=("amx_tile", "avx512_vnni"),
    vector_bits=512,
    registers=32,
    cores=8,
    l1_bytes=48 << 10,
    l2_bytes=2 << 20,
    l3_bytes=32 << 20,
    tune="sapphirerapids",
    core="Intel(R) Xeon(R)",
)

MACHINE = MachineDescription(
    arch="aarch64",
    cpu="cortex-a76",
    features=("asimd", "asimddp"),
    cores=4,
    l1_bytes=64 << 10,
    l2_bytes=512 << 10,
    l3_bytes=2 << 20,
    memory_bytes=8 << 30,
    emulated=True,
    host="rpi5",
)

MANIFEST = Manifest(
    name="net",
    inputs=(
        TensorSpec("x", "f32", ("8*n", 4), (16, 4), ("batch", ""), (3, 9)),
        TensorSpec("past", "f32", ("m", 4), (2, 4), ("", "")),
        TensorSpec("words", "string", (2, 5)),
    ),
    outputs=(
        TensorSpec("y", "f32", ("8*n", 4), (16, 4)),
        TensorSpec("present", "f32", ("m", 4), (2, 4)),
        TensorSpec("hits", "i64", ("k", 2), (3, 2)),
    ),
    architecture="x86_64",
    machine="x86-64-v3",
    features=("avx512_vnni", "fma"),
    code=(CodeFile("code/model.so", "elf", ("net_run",), "a" * 64),),
    backend=CpuPart("x86_64-unknown-linux-gnu", 2, 8, "net_run", 65536, "64*n+c").to_json(),
    params_bytes=4096,
    hashes={"params.bin": "b" * 64},
    tools={"farrier": "0.1.0"},
    kernels=(
        KernelReport("add_1", "ab12", 3, "elementwise", "default", 1.5),
        KernelReport("dot_2", "cd34", 1, "tile", "tuned", 2.5, 2.25, 64, 32, "u8 i8 i32"),
        KernelReport("max_3", "ef56", 1, "rows", "default", 0.5, space="host", reason="y is i64"),
    ),
    precision="bf16",
    dims=(NamedDim("batch", "n", 1, 4, 2, 8), NamedDim("past", "m", 0, 64, 2)),
    capacities=(Capacity("c", 16),),
    preconditions=(Precondition("add", "n is 1", True, ("batch",), "batch is 8 to 32", "4-n"),),
    counted=(CountedDim("k", "8*n"),),
    checks=(
        SizeCheck("nonzero", "c"),
        SizeCheck("reshape", 4, True),
        SizeCheck("if", 0, False, "the branch is not compiled", "a positive size"),
    ),
    sizes=(2, 2, 16, 3, 0),
    declaration=Declaration(
        inputs=(DeclaredValue("x", "tensor(float)", ("batch", 4, None), ("x",)),),
        outputs=(
            DeclaredValue("maps", "seq(map(int64,tensor(float)))", (), ("y",), (1, "two")),
            DeclaredValue("seq", "seq(tensor(float))", (), ("seq.items", "seq.lengths"), axis=1),
        ),
        defaults=("w",),
        graph_name="g",
        graph_description="of a test",
        producer="pytest",
        domain="ai.farrier",
        description="a net",
        version=3,
        metadata={"license": "none"},
    ),
    state=(HeldState("past", "present", 0, 64, 0.5, True),),
)

RECORD = TuningRecord(
    task="a1",
    fingerprint="0123456789abcdef",
    threads=2,
    rule="register_tile",
    version=6,
    decisions=(("nb", 2), ("tx", 14)),
    trace="split(conv_oc, 32)\n",
    status=Status.OK,
    samples_ns=(1500, 1000),
    seed=3,
    created=1.5,
    context=Context.MODEL,
    device_class="amd-epyc-2c",
    device="local",
)

OUTCOME = Outcome(
    is_better=True,
    reason="more pairs in order",
    of={"trained": Figures(0.9, 0.125, 0.99), "analytic": Figures(0.7, 0.25, 0.9)},
    unseen={"c1": {"trained": Figures(0.8, 0.1, 1.0)}},
    records=7,
    tasks=3,
    held_out=1,
    set_aside=2,
    shown=(SetAside("t", "rule", (("a", 1), ("b", -2)), "c1", "d1", "too fast"),),
    damaged={"t2": "no program"},
)

_SCHEDULE = progress.TaskSchedule(
    "k", "conv", 2, 0.5, "tile", 3, 99, {"t": 1}, 8.0, {"t": 2}, "tuned", 7.5, 6.5
)
EVENTS: tuple[Event, ...] = (
    progress.StageStarted("import"),
    progress.StageFinished("import", 0.5, "well"),
    progress.SizesSettled(["n: 1 to 8"], ["n < 9"]),
    progress.TasksFound(3, 4),
    progress.TasksScheduled([_SCHEDULE], {"n": 4}),
    progress.TuningStarted("version 3"),
    progress.TrialsMeasured(16, None, 1.5, 3.0, "conv", 1),
    progress.VariantsCompared("schedules", 3, 1),
    progress.TimeSpent(60.0, {"finals": 3.0}, {"compile": 2.0}),
    progress.Verified(1e-6, 1.5, 2.0, "local", True, "onnxruntime", "other", True, "float64"),
    progress.Raced(
        "onnxruntime", "1.2", "local", 2, {"median": 2.0}, {"median": 1.0}, 0.5, 1e-7, "well"
    ),
    progress.VersionAdded(2, 1.5, None),
    progress.RolledBack(1),
    progress.Warned("slow", "sizes"),
)

_ARGUMENT = Argument(Role.OUTPUT, 508, "bf16", "d" * 64, "e" * 64, cold=True, padding=7)
_TENSOR = Tensor("x", "f32", (2, 3), "f" * 64)
REQUEST = MeasureRequest(
    code=(CodeObject("a" * 64),),
    candidates=(
        Candidate(
            (Launch("k"),), (_ARGUMENT,), (Launch("pack"),), (Launch("one", ((0, 64), (0, 128))),)
        ),
    ),
    policy=TimingPolicy(3, 2, 6, 65, 0.5, 5.0, 1e-3, 0.25),
    reference=Candidate((Launch("reference"),), ()),
    rival=Rival("openvino", (("", "b" * 64),), (_TENSOR,), (_TENSOR,), 1e-4, 4, 0.5, 60.0),
    floors_ns=((10, 4), (7,)),
    verifies=True,
)
LAUNCHED = MeasureRequest(
    code=(CodeObject("c" * 64, "queue"),),
    candidates=(
        Candidate(
            (Launch("k", ((0, 64),), (8, 4, 1), (32,)), Launch("l")),
            (_ARGUMENT,),
            (Launch("p", ()),),
        ),
    ),
)
RESULTS = (
    MeasureResult(
        results=(
            CandidateResult(Status.OK, (100, 99), 1e-7, "fine", ((40, 39), (60, 60)), 3, "d"),
        ),
        device="d",
        sandbox="seccomp+rlimits",
        transfer_s=0.5,
        run_s=1.5,
        emulated=True,
        hot="throttled",
        rival=RivalResult("openvino", "2025.3", 0.5, ((7, 8),), ((5, 6),), 1e-6, "fine"),
        signed=True,
        confirmed_by="e",
        untrusted=True,
    ),
    MeasureResult(fault=DeviceFault.NO_SPACE, blame=Blame.FARM, message="full"),
)

AT = Place("workspace", "64 * n", "chip")
CHECK = program.Check(3, "4 * n", "most")
LOOP = program.Repeat(
    "n",
    Place("x"),
    Place("y", 8),
    Place("z"),
    Place("w"),
    (program.Carried("c", "d", AT, Place("even"), Place("odd")),),
    (program.Slice("s", Place("x"), "4 * n"),),
    (program.Wait("chip"),),
    "trips",
    CHECK,
    (program.Grown("g", 0, "g + 1", "total", CHECK),),
)
PROGRAM = Program(
    (program.Memory("input0", "4 * n"),),
    ("n",),
    ("k",),
    {"top": "max(n, 64)"},
    (program.Allocate("workspace", "chip", 256),),
    (
        program.Copy(Place("input0"), AT, "4 * n"),
        program.Copy(Place("input0"), AT, "n", has_spare=True),
        program.Launch("k0", "chip", (AT,), ("n",), (AT,), ("n",), ("n", 2), (8,)),
        program.Call("k1", (AT,), (7,), (AT,), ("n",), copies=True),
        program.Bind(Place("x"), "k", CHECK),
        program.Branch(Place("x"), (program.Fail(2),), (LOOP,), (program.Joined("j", 1, "n"),)),
    ),
)

FORMS: dict[str, Form] = {
    "compile-options": Form(
        (OPTIONS,),
        lambda value: json.dumps(value.to_dict()),
        lambda text: CompileOptions.from_dict(json.loads(text)),
    ),
    "target": Form(
        (TARGET,),
        lambda value: json.dumps(value.to_dict()),
        lambda text: read_target(json.loads(text)),
    ),
    "machine": Form((MACHINE,), to_text, lambda text: parse_machine(text).description),
    "manifest": Form((MANIFEST,), Manifest.to_json, Manifest.from_json),
    "calls": Form(
        ((CallRecord("k1", "ab12", 'odd "name"\n', (CallArgument(0, 0, 64),), 2),),),
        calls.to_json,
        calls.from_json,
    ),
    "schedules": Form(
        ((Schedules({"conv": "winograd"}, {"ab12": {"nb": 2}}, 3072), Schedules({}, {})),),
        schedules.to_json,
        schedules.from_json,
    ),
    "signature": Form(
        (Signature({"code/model.so": "a" * 64}, PublicKey(bytes(range(32))), bytes(64)),),
        Signature.to_json,
        lambda text: Signature.of_json(text.encode()),
    ),
    "record": Form((RECORD,), TuningRecord.to_line, TuningRecord.from_line),
    "definition": Form(
        (TaskDefinition("t", "host", 2, "kernel f():\n  'ü'", '{"cpu":"znver5"}'),),
        TaskDefinition.to_line,
        TaskDefinition.from_line,
    ),
    "outcome": Form(
        (OUTCOME,),
        lambda value: json.dumps(value.to_dict()),
        lambda text: Outcome.from_dict(json.loads(text)),
    ),
    **{
        f"event-{progress.to_dict(event)['kind']}": Form(
            (event,),
            lambda value: json.dumps(progress.to_dict(value)),
            lambda text: progress.from_dict(json.loads(text)),
        )
        for event in EVENTS
    },
    "measure-request": Form((REQUEST,), to_json, request_from_json),
    "measure-launches": Form((LAUNCHED,), to_json, request_from_json),
    "measure-request-whole": Form(
        (REQUEST,), to_json, lambda text: request_from_json(text, whole=True)
    ),
    "program": Form((PROGRAM,), program.program_to_json, program_from_json),
    "measure-result": Form(RESULTS, to_json, result_from_json),
    "pending-result": Form(
        (PendingResult("lease", 3, "{}"),),
        _dumped,
        lambda text: codec.loads(PendingResult, text),
    ),
    "model-of-files": Form(
        (models.Manifest("a" * 64, {"m.data": models.DataFile("b" * 64, 5000)}),),
        models.Manifest.to_json,
        models.Manifest.from_json,
    ),
    "device-secret": Form(
        (SecretFile("d", "g", "s", "t", "00ff", "n"),),
        _dumped,
        lambda text: codec.loads(SecretFile, text),
    ),
}
