"""What a measurement is: plain data that crosses every boundary between compiler, farm and device.

A request names code objects and, for each candidate, the launches of entry points in them; a result
states of each candidate how long it ran or how it failed. Failure is a field, never an exception: a
candidate that crashes, hangs or answers wrong is a fact about the candidate (it trains the cost
model). A batch that fails as a whole is not evidence about its candidates: `DeviceFault` names the
way, `Blame` whose fault it is, and so who may measure it instead.

On a host the code is one linked library, and every entry point has one C signature, for a single
kernel and for a whole model alike:

    int32_t entry(void *const *args, const farrier_pool *pool)

`args` holds one pointer an argument, 64-byte aligned, in the order of `Candidate.args`. The entry
returns 0, a positive code for a failure of its own, or -1 - n if the check numbered n of a model
refuses the sizes that the values of its inputs lead to.

Standard library only: this module runs on a board that has no numpy.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Sequence
from typing import Any

from farrier_device import codec
from farrier_device.library_form import HOST_CODE, from_library_form, to_library_form

_JSON: Any = Any  # It annotates a value that is JSON of any form.


class Role(enum.StrEnum):
    """What an argument of an entry point is for."""

    INPUT = "input"  # read only; filled from its blob before the first call
    OUTPUT = "output"  # written; compared with its expected blob after the first call
    SCRATCH = "scratch"  # read and written; zero at first, never compared


class Status(enum.StrEnum):
    """How one candidate ended."""

    OK = "ok"
    WRONG = "wrong"  # ran, but its output is outside the tolerance
    CRASHED = "crashed"  # killed by a signal, returned another code than 0, or spoilt its process
    TIMEOUT = "timeout"  # did not return within `TimingPolicy.timeout_s`
    REJECTED = "rejected"  # could not be loaded: missing symbol, unreadable library


class DeviceFault(enum.StrEnum):
    """Why a whole batch says nothing about its candidates."""

    DRIFTED = "drifted"  # the reference kernel became slower by `TimingPolicy.max_drift`
    LOST = "lost"  # the device disappeared in mid-batch
    IMPLAUSIBLE = "implausible"  # it answered what no device can measure
    NO_SPACE = "no-space"
    BROKEN = "broken"  # nothing could be measured; the message says why


class Blame(enum.StrEnum):
    """Whose fault it is that a batch failed as a whole."""

    DEVICE = "device"  # of its machine; five in a row put the device in quarantine
    LIBRARY = "library"  # or the device's: the reference fails in a fresh process; a second tells
    AGENT = "agent"  # it lacks the version or the token for the batch; another device measures it
    FARM = "farm"  # a blob is missing or damaged: no device can measure the batch


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an entry point.

    `blob` and `expected` are sha256 hex digests of raw little-endian bytes of exactly `nbytes`.
    Elements of `expected` whose bits are `padding` are not compared: they fill up a block.
    `cold` arguments are flushed out of every cache before each timed call, as weights are in a
    network that does not fit the last-level cache.
    """

    role: Role
    nbytes: int
    dtype: str = "f32"  # of `expected`: a name of `native.DTYPE_CODES`
    blob: str | None = None
    expected: str | None = None
    cold: bool = False
    padding: int | None = None  # an unsigned number of at most 32 bits


@dataclasses.dataclass(frozen=True, slots=True)
class CodeObject:
    """Code by the sha256 of its bytes; its kind decides which device loads it (`devices`)."""

    blob: str
    kind: str = HOST_CODE


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One run of an entry point on a device.

    Each of its arguments lies in one of the candidate's: its position there, and the offset in
    bytes; `args` of None are the candidate's arguments in their order. `grid` counts the blocks of
    a launch along each axis, and `block` the threads of a block; a host has neither.
    """

    symbol: str
    args: tuple[tuple[int, int], ...] | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """The launches that compute a result from arguments, to be measured.

    They run one after another. `prepare` runs once before the first time and is not timed: it packs
    weights into the layout that the schedule chose. `parts`, if there are any, do the work of
    `launches`: in their place the parts run one after another, each timed by itself, so that the
    kernels of a model are measured on the memory, and with the caches, that they have in it.
    """

    launches: tuple[Launch, ...]
    args: tuple[Argument, ...]
    prepare: tuple[Launch, ...] = ()
    parts: tuple[Launch, ...] = ()

    @property
    def name(self) -> str:
        """The symbols of the launches, for messages."""
        return ", ".join(launch.symbol for launch in self.launches)


@dataclasses.dataclass(frozen=True, slots=True)
class TimingPolicy:
    """How to time each candidate of a batch.

    One untimed call (checked against `expected`, as the last one is again), `warmup` more, then
    calls timed one by one until both `min_repeats` calls and `min_time_s` seconds (with the flushes
    between them) are reached, or `max_repeats` calls. Fewer if `timeout_s` would pass, but one; and
    fewer of a candidate whose first calls are slower than those of another of which the same is
    expected.
    """

    threads: int = 1
    warmup: int = 1
    min_repeats: int = 5
    max_repeats: int = 64  # more tell no more: what disturbs a machine lasts longer than that
    min_time_s: float = 0.01
    timeout_s: float = 10.0  # for all calls of one candidate
    tolerance: float = 1e-4  # max |out - expected| over max |expected|
    max_drift: float = 0.15  # by which the reference may be slower after the batch than before it


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or an output of a whole model, by the name that its file gives it; `blob` has what
    the input is, or what the output should be."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    blob: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rival:
    """Another engine, which is to run the model that the only candidate was compiled from.

    `files` are the ONNX model's, as (location, sha256); the location of the message itself is "".
    The engine's outputs are compared first. Where they are off by more than `tolerance`, it is not
    timed. Then rounds of about `round_s` seconds are run in turn, of the candidate and of the
    engine. `timeout_s` bounds all of it, loading the model included.
    """

    engine: str  # a name of `engines.NAMES`
    files: tuple[tuple[str, str], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tolerance: float
    rounds: int = 10
    round_s: float = 0.2
    timeout_s: float = 120.0

    def blobs(self) -> frozenset[str]:
        tensors = {tensor.blob for tensor in (*self.inputs, *self.outputs)}
        return frozenset(tensors | {sha256 for _, sha256 in self.files})


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One batch: code objects and the candidates that run in them.

    `reference`, where given, is timed before and after the candidates to detect drift. With a
    `rival` there is one candidate, a whole model; the two are timed in turn.

    `floors_ns` are of each candidate the nanoseconds that no call of it can beat, then those of
    each of its parts. A batch that `verifies` decides whether a model is right, and so who measures
    it matters. Both are for whoever hands the batch out: a device is told neither (`for_device`).
    """

    code: tuple[CodeObject, ...]
    candidates: tuple[Candidate, ...]
    policy: TimingPolicy = TimingPolicy()
    reference: Candidate | None = None
    rival: Rival | None = None
    floors_ns: tuple[tuple[int, ...], ...] = ()
    verifies: bool = False

    def for_device(self) -> MeasureRequest:
        """The request without what its device is not to know: one that knew the floors could
        answer just above them."""
        return dataclasses.replace(self, floors_ns=(), verifies=False)

    def blobs(self) -> frozenset[str]:
        """The sha256 of every blob that a device needs for this request, its code included."""
        args = [a for c in (*self.candidates, self.reference) if c is not None for a in c.args]
        named = {h for a in args for h in (a.blob, a.expected) if h is not None}
        rivals = self.rival.blobs() if self.rival is not None else frozenset()
        return frozenset(named | rivals | self.code_blobs)

    @property
    def code_blobs(self) -> frozenset[str]:
        """The sha256 of every code object."""
        return frozenset(code.blob for code in self.code)

    @property
    def most_bytes(self) -> int:
        """The most that one candidate's arguments take."""
        return max((sum(a.nbytes for a in c.args) for c in self.candidates), default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateResult:
    """How one candidate did. `samples_ns` holds every timed call, in order, unless it failed; of a
    candidate in parts, `parts_ns` holds as many samples of each part, and `samples_ns` their sums.
    `code` is what an entry point returned that did not crash although it failed: who compiled the
    code knows the meaning.
    `device` is filled in by who asked several devices.
    """

    status: Status
    samples_ns: tuple[int, ...] = ()
    max_error: float | None = None  # relative to max |expected|, where something was compared
    message: str = ""
    parts_ns: tuple[tuple[int, ...], ...] = ()
    code: int = 0
    device: str = ""

    @property
    def undisturbed_ns(self) -> float:
        """What a call takes while nothing else runs, in nanoseconds: see `fast_quartile_mean`."""
        return fast_quartile_mean(self.samples_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class RivalResult:
    """How another engine did, and the candidate between its rounds: nanoseconds of each call by
    round. An engine that was not timed has a message that says why, and no rounds."""

    engine: str
    version: str = ""
    load_s: float = 0.0  # from the file to the first outputs, the engine being imported
    rounds_ns: tuple[tuple[int, ...], ...] = ()
    ours_ns: tuple[tuple[int, ...], ...] = ()
    max_error: float | None = None  # as that of a candidate
    message: str = ""


def fast_quartile_mean(samples: Sequence[float]) -> float:
    """The mean of the fastest quarter of the samples; infinity where there are none.

    What else happens on a machine only adds time, so fast samples repeat where medians do not; a
    quarter of them repeats better than the fastest alone, which Chen and Revels take ("Robust
    benchmarking in noisy environments", 2016). docs/develop/measuring.md has figures.
    """
    if not samples:
        return float("inf")
    fastest = sorted(samples)[: max(1, round(len(samples) / 4))]
    return sum(fastest) / len(fastest)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureResult:
    """How a batch did: one result a candidate in the request's order, or a fault.

    The clocks are separate so that a slow transfer never looks like a slow kernel.
    """

    results: tuple[CandidateResult, ...] = ()
    fault: DeviceFault | None = None
    blame: Blame = Blame.DEVICE  # of a fault; an agent that does not say knew of no other
    message: str = ""
    device: str = ""  # id of the device that measured
    sandbox: str = ""  # the isolation level that the child reached
    transfer_s: float = 0.0  # of blobs, to the farm's store and to the device
    run_s: float = 0.0  # on the device, all of the batch
    emulated: bool = False  # the device is software: its times say nothing of the hardware
    hot: str = ""  # why it may be slower than it is when cool; "" where it is cool
    rival: RivalResult | None = None
    signed: bool = False  # by the device, with a secret of its own: the broker says so
    confirmed_by: str = ""  # id of another device that was asked, and answered alike
    untrusted: bool = False  # nobody vouches for the device, and no other confirmed the result

    def answers(self, request: MeasureRequest) -> bool:
        """Whether it has a result of each candidate, and of each part of one that ran; a fault
        answers every request."""
        if self.fault is not None:
            return True
        return len(self.results) == len(request.candidates) and all(
            len(result.parts_ns) == len(candidate.parts)
            for candidate, result in zip(request.candidates, self.results, strict=True)
            if result.samples_ns
        )


def impossible(result: MeasureResult) -> str:
    """Return why a result is of no measurement whatever was measured, "" for any other."""
    return next(filter(None, map(_impossible, result.results)), "")


def _impossible(result: CandidateResult) -> str:
    error = result.max_error
    if error is not None and not error >= 0:  # NaN is not, either
        return f"a candidate is off by {error}, which is not a distance"
    if any(ns < 0 for samples in (result.samples_ns, *result.parts_ns) for ns in samples):
        return "a call ended before it began"
    if result.status is Status.OK and not any(result.samples_ns):
        return "a candidate ran and took no time"
    return ""


def implausible(result: MeasureResult, floors_ns: Sequence[Sequence[int]]) -> str:
    """Return how a result is below the `floors_ns` of its request, "" where it is not."""
    for one, floors in zip(result.results, floors_ns, strict=False):
        for samples, floor in zip((one.samples_ns, *one.parts_ns), floors, strict=False):
            took = fast_quartile_mean(samples)
            if took < floor:
                return (
                    f"a call took {took / 1e3:.3g} µs, and no machine of its class takes less "
                    f"than {floor / 1e3:.3g} µs"
                )
    return ""


def to_json(value: MeasureRequest | MeasureResult) -> str:
    """Return the canonical JSON text of a request or result, which a manifest's signature covers.
    A request is in the form that all versions read, where it fits (`library_form`)."""
    raw = codec.encode(value)
    if isinstance(value, MeasureRequest):
        raw = to_library_form(raw)
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


def request_from_json(text: str, *, whole: bool = False) -> MeasureRequest:
    """Return the inverse of `to_json`. Raises ValueError on any other text, and for a caller that
    wants the `whole` of it, as one that runs it, if it asks for more than this version knows."""
    unknown = codec.Unknown.REFUSED_UNLESS_EMPTY if whole else codec.Unknown.IGNORED
    raw = codec.loads(_JSON, text, name=MeasureRequest.__name__)
    return codec.decode(MeasureRequest, from_library_form(raw), unknown=unknown)


def result_from_json(text: str) -> MeasureResult:
    """Return the inverse of `to_json`; raises ValueError on any other text."""
    result = codec.loads(MeasureResult, text)
    for candidate in result.results:
        _check_parts(candidate)
    return result


def candidate_result(raw: dict[str, Any]) -> CandidateResult:
    """A result from its decoded JSON object; raises ValueError on any other."""
    result = codec.decode(CandidateResult, raw)
    _check_parts(result)
    return result


def _check_parts(result: CandidateResult) -> None:
    if not all(len(part) == len(result.samples_ns) for part in result.parts_ns):
        raise ValueError("a part that was not timed as often as the whole")
