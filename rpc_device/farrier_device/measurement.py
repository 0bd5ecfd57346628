"""Measurement requests and results as plain data, exchanged between compiler, farm and devices.

A request names code objects and, for each candidate (a variant of compiled code), the launches of
entry points in them; a result contains for each candidate its running times or its failure. A
failure is a field, never an exception: a candidate that crashes, hangs or computes wrong outputs is
information about the candidate, which trains the cost model. A batch that fails as a whole contains
no information about its candidates: `DeviceFault` is the kind of failure, and `Blame` its cause,
which determines which device may measure the batch instead.

On a host the code is one linked library, in which every entry point, of a single kernel or of a
whole model, has this C signature:

    int32_t entry(void *const *args, const farrier_pool *pool)

`args` contains one pointer per argument, 64-byte aligned, in the order of `Candidate.args`. The
entry point returns 0, a positive code for a failure of its own, or -1 - n if check number n of a
model rejects sizes that are computed from its inputs.

This module needs only the standard library, because it runs on boards without numpy.
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
    """The use of an argument of an entry point: input, output, or scratch memory."""

    INPUT = "input"  # Read only; filled from its blob before the first call.
    OUTPUT = "output"  # Written; compared with its expected blob after the first call.
    SCRATCH = "scratch"  # Read and written; zero at first, never compared.


class Status(enum.StrEnum):
    """The outcome of one candidate."""

    OK = "ok"
    WRONG = "wrong"  # It ran, but its output is outside the tolerance.
    # It was killed by a signal, returned a code other than 0, or spoilt its process.
    CRASHED = "crashed"
    TIMEOUT = "timeout"  # It did not return within `TimingPolicy.timeout_s`.
    REJECTED = "rejected"  # It could not be loaded: missing symbol, unreadable library.


class DeviceFault(enum.StrEnum):
    """The reason why a whole batch failed, which does not reflect on its candidates."""

    DRIFTED = "drifted"  # The reference kernel became slower by more than `TimingPolicy.max_drift`.
    LOST = "lost"  # The device disappeared during the batch.
    IMPLAUSIBLE = "implausible"  # It reported a result that no device can measure.
    NO_SPACE = "no-space"
    BROKEN = "broken"  # Nothing could be measured; the message states the reason.


class Blame(enum.StrEnum):
    """The party that caused the failure of a whole batch."""

    DEVICE = "device"  # The device's machine; five such faults in a row put it in quarantine.
    # The library or the device: the reference fails in a fresh process, and a second device
    # decides.
    LIBRARY = "library"
    # The agent lacks the version or the token for the batch; another device measures it.
    AGENT = "agent"
    FARM = "farm"  # A blob is missing or damaged: no device can measure the batch.


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an entry point.

    `blob` and `expected` are sha256 hex digests of raw little-endian bytes, exactly `nbytes` long:
    the content of an input, and the expected content of an output. Elements of `expected` whose
    bits are `padding` are not compared, because they only pad a block. `cold` arguments are flushed
    out of every cache before each timed call, like the weights of a network that exceeds the
    last-level cache.
    """

    role: Role
    nbytes: int
    dtype: str = "f32"  # The dtype of `expected`: a name in `native.DTYPE_CODES`.
    blob: str | None = None
    expected: str | None = None
    cold: bool = False
    padding: int | None = None  # An unsigned number of at most 32 bits.


@dataclasses.dataclass(frozen=True, slots=True)
class CodeObject:
    """A code object, named by the sha256 of its bytes; its kind determines which device loads it
    (`devices`)."""

    blob: str
    kind: str = HOST_CODE


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """One run of an entry point on a device.

    `args` maps each argument of the launch to a part of one of the candidate's arguments: its
    position and an offset in bytes. None means the candidate's arguments in order. `grid` is the
    number of blocks along each axis, and `block` the number of threads of a block; both are empty
    on a host.
    """

    symbol: str
    args: tuple[tuple[int, int], ...] | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """The launches that compute a result from arguments, to be measured as one variant.

    The launches run one after another. `prepare` runs once before them and is not timed; it packs
    weights into the layout that the schedule requires. `parts`, if there are any, replace
    `launches`: they also run one after another, but each is timed separately, so that the kernels
    of a model are measured with the memory and cache contents that they have in the model.
    """

    launches: tuple[Launch, ...]
    args: tuple[Argument, ...]
    prepare: tuple[Launch, ...] = ()
    parts: tuple[Launch, ...] = ()

    @property
    def name(self) -> str:
        """The symbols of the candidate's launches, for messages."""
        return ", ".join(launch.symbol for launch in self.launches)


@dataclasses.dataclass(frozen=True, slots=True)
class TimingPolicy:
    """The number and duration of the timed calls of each candidate of a batch.

    A candidate is called once untimed, then `warmup` more times, then timed call by call until both
    `min_repeats` calls and `min_time_s` seconds (including the cache flushes between them) are
    reached, or `max_repeats` calls. The outputs of the first and of the last call are compared with
    `expected`. Fewer calls, but at least one, are timed if `timeout_s` would be exceeded, or if the
    first calls are slower than those of another candidate with the same expected outputs.
    """

    threads: int = 1
    warmup: int = 1
    min_repeats: int = 5
    # More calls give no better time, because disturbances of a machine last longer.
    max_repeats: int = 64
    min_time_s: float = 0.01
    timeout_s: float = 10.0  # The time limit of all calls of one candidate.
    tolerance: float = 1e-4  # The bound of max |out - expected| over max |expected|.
    # The factor by which the reference may be slower after the batch than before, less 1.
    max_drift: float = 0.15


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or an output of a whole model, by its name in the model file. `blob` is the digest
    of the input's data, or of the expected output."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    blob: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rival:
    """Another inference engine, to be compared with the request's only candidate, which was
    compiled from the same model.

    `files` are the files of the ONNX model, as (location, sha256); the location of the model file
    itself is "". The engine's outputs are compared first; if their error exceeds `tolerance`, the
    engine is not timed. Otherwise the candidate and the engine run alternating rounds of about
    `round_s` seconds. `timeout_s` limits the total time, including the loading of the model.
    """

    engine: str  # A name in `engines.NAMES`.
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
    """A batch: code objects, and the candidates whose code is in them.

    `reference`, if set, is a candidate timed before and after the others to detect drift of the
    device's speed. With a `rival`, there is one candidate, a whole model, and both are timed in
    alternating rounds.

    `floors_ns` contains, for each candidate, the least time in nanoseconds that a call can
    physically take, followed by that of each of its parts. A batch with `verifies` decides whether
    a model is correct, so not every device may measure it. The broker uses both fields, and
    `for_device` removes them.
    """

    code: tuple[CodeObject, ...]
    candidates: tuple[Candidate, ...]
    policy: TimingPolicy = TimingPolicy()
    reference: Candidate | None = None
    rival: Rival | None = None
    floors_ns: tuple[tuple[int, ...], ...] = ()
    verifies: bool = False

    def for_device(self) -> MeasureRequest:
        """Return the request without the fields that its device must not see: a device that knew
        the floors could report false times just above them."""
        return dataclasses.replace(self, floors_ns=(), verifies=False)

    def blobs(self) -> frozenset[str]:
        """The sha256 digests of all blobs that a device needs for this request, including its
        code."""
        args = [a for c in (*self.candidates, self.reference) if c is not None for a in c.args]
        named = {h for a in args for h in (a.blob, a.expected) if h is not None}
        rivals = self.rival.blobs() if self.rival is not None else frozenset()
        return frozenset(named | rivals | self.code_blobs)

    @property
    def code_blobs(self) -> frozenset[str]:
        """The sha256 digests of all code objects."""
        return frozenset(code.blob for code in self.code)

    @property
    def most_bytes(self) -> int:
        """The largest total size of one candidate's arguments, in bytes."""
        return max((sum(a.nbytes for a in c.args) for c in self.candidates), default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateResult:
    """The result of one candidate. `samples_ns` contains the nanoseconds of every timed call, in
    order, and is empty after a failure. For a candidate in parts, `parts_ns` contains the samples
    of each part, and `samples_ns` their sums. `code` is the non-zero return value of an entry point
    that failed without crashing, whose meaning only the compiler of the code knows. `device` is set
    by a caller that has used several devices."""

    status: Status
    samples_ns: tuple[int, ...] = ()
    max_error: float | None = None  # Relative to max |expected|; None if nothing was compared.
    message: str = ""
    parts_ns: tuple[tuple[int, ...], ...] = ()
    code: int = 0
    device: str = ""

    @property
    def undisturbed_ns(self) -> float:
        """The time of a call on an otherwise idle machine, in nanoseconds, by
        `fast_quartile_mean`."""
        return fast_quartile_mean(self.samples_ns)


@dataclasses.dataclass(frozen=True, slots=True)
class RivalResult:
    """The result of a race between another engine and the candidate in alternating rounds.
    `rounds_ns` contains the nanoseconds of the engine's calls by round, and `ours_ns` those of the
    candidate's calls. If the engine was not timed, `message` is the reason, and both are empty."""

    engine: str
    version: str = ""
    # The seconds from the file to the first outputs, after the engine was imported.
    load_s: float = 0.0
    rounds_ns: tuple[tuple[int, ...], ...] = ()
    ours_ns: tuple[tuple[int, ...], ...] = ()
    max_error: float | None = None  # As `CandidateResult.max_error`.
    message: str = ""


def fast_quartile_mean(samples: Sequence[float]) -> float:
    """Return the mean of the fastest quarter of the samples; infinity if there are none.

    Disturbances of a machine only add time, so fast samples vary less than medians. The mean of the
    fastest quarter varies less than the single fastest sample, which Chen and Revels use ("Robust
    benchmarking in noisy environments", 2016). docs/develop/measuring.md has figures.
    """
    if not samples:
        return float("inf")
    fastest = sorted(samples)[: max(1, round(len(samples) / 4))]
    return sum(fastest) / len(fastest)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result of a batch: one result per candidate in the request's order, or a fault.

    The fields for transfer and measuring time are separate, so that a slow transfer never looks
    like a slow kernel.
    """

    results: tuple[CandidateResult, ...] = ()
    fault: DeviceFault | None = None
    # The blame for a fault; agents that do not report it only knew this one.
    blame: Blame = Blame.DEVICE
    message: str = ""
    device: str = ""  # The id of the device that measured.
    sandbox: str = ""  # The isolation level that the child reached.
    transfer_s: float = 0.0  # The seconds to transfer blobs, to the farm's store and to the device.
    run_s: float = 0.0  # The seconds of the whole batch on the device.
    emulated: bool = False  # The device is software, whose times are not those of hardware.
    hot: str = ""  # The reason why it may be slower than a cool machine; "" if it is cool.
    rival: RivalResult | None = None
    # The device has signed it with a secret of its own, as the broker has checked.
    signed: bool = False
    confirmed_by: str = ""  # The id of another device that was asked, and agreed.
    # The device is not trusted, and no other device has confirmed the result.
    untrusted: bool = False

    def answers(self, request: MeasureRequest) -> bool:
        """Return whether this result has a result for each candidate of the request, and for each
        part of a candidate that ran. A fault answers every request."""
        if self.fault is not None:
            return True
        return len(self.results) == len(request.candidates) and all(
            len(result.parts_ns) == len(candidate.parts)
            for candidate, result in zip(request.candidates, self.results, strict=True)
            if result.samples_ns
        )


def impossible(result: MeasureResult) -> str:
    """Return the reason why a result cannot come from a real measurement; "" if there is none."""
    return next(filter(None, map(_impossible, result.results)), "")


def _impossible(result: CandidateResult) -> str:
    error = result.max_error
    if error is not None and not error >= 0:  # NaN is not at least 0 either.
        return f"a candidate reports the error {error}, which is not a number of at least 0"
    if any(ns < 0 for samples in (result.samples_ns, *result.parts_ns) for ns in samples):
        return "a call ended before it began"
    if result.status is Status.OK and not any(result.samples_ns):
        return "a candidate succeeded, but all its times are 0"
    return ""


def implausible(result: MeasureResult, floors_ns: Sequence[Sequence[int]]) -> str:
    """Return a text that names the times of a result that are below the `floors_ns` of its request;
    "" if there are none."""
    for candidate, floors in zip(result.results, floors_ns, strict=False):
        for samples, floor in zip(
            (candidate.samples_ns, *candidate.parts_ns), floors, strict=False
        ):
            took = fast_quartile_mean(samples)
            if took < floor:
                return (
                    f"a call took {took / 1e3:.3g} µs, but no machine of its class takes "
                    f"less than {floor / 1e3:.3g} µs"
                )
    return ""


def to_json(value: MeasureRequest | MeasureResult) -> str:
    """Return the canonical JSON text of a request or result; a manifest's signature covers this
    text. A request that fits the form that all versions read is written in that form
    (`library_form`)."""
    raw = codec.encode(value)
    if isinstance(value, MeasureRequest):
        raw = to_library_form(raw)
    return json.dumps(raw, sort_keys=True, separators=(",", ":"))


def request_from_json(text: str, *, whole: bool = False) -> MeasureRequest:
    """Parse a request, the inverse of `to_json`. Raises ValueError for any other text. With
    `whole`, a request with fields that this version does not know raises ValueError as well,
    because a device has to understand the whole request."""
    unknown = codec.Unknown.REFUSED_UNLESS_EMPTY if whole else codec.Unknown.IGNORED
    raw = codec.loads(_JSON, text, name=MeasureRequest.__name__)
    return codec.decode(MeasureRequest, from_library_form(raw), unknown=unknown)


def result_from_json(text: str) -> MeasureResult:
    """Parse a result, the inverse of `to_json`. Raises ValueError for any other text."""
    result = codec.loads(MeasureResult, text)
    for candidate in result.results:
        _check_parts(candidate)
    return result


def candidate_result(raw: dict[str, Any]) -> CandidateResult:
    """Return the candidate result in a parsed JSON object. Raises ValueError for any other
    object."""
    result = codec.decode(CandidateResult, raw)
    _check_parts(result)
    return result


def _check_parts(result: CandidateResult) -> None:
    if not all(len(part) == len(result.samples_ns) for part in result.parts_ns):
        raise ValueError("a part has another number of times than the whole candidate")
