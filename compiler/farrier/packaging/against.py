"""Race a verified model against other engines on the measuring device, if it has them.

The race does not affect the compilation and cannot make it fail: errors of an engine are reported,
and so is the lack of a device that has the engine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import FarrierError, NoDeviceError, StorageError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.ir.types import DType
from farrier.measure import Blobs, Runner
from farrier.packaging.verify import Measured, Verification
from farrier.progress import Listener, Raced, Warned
from farrier_device.baseline.turns import ratio
from farrier_device.measurement import MeasureRequest, MeasureResult, Rival, Tensor
from farrier_device.storage.digest import digest_of_file

_MOST_BLOBS = 900  # The limit for one batch; a farm takes few more.
_ROOM = 16.0  # The factor on the tolerance, because the other engine rounds, too.


def race(
    engines: Sequence[str],
    model: Model,
    verified: Verification,
    runner: Runner,
    blobs: Blobs,
    listener: Listener,
) -> list[Raced]:
    """Run the model in other engines, and return a result for each engine that some device has.
    Results are sent to the listener, as are warnings of missing engines. Raises the errors of
    `Runner.measure` except NoDeviceError and StorageError."""
    if not engines:
        return []
    results = []
    try:
        rival = _rival(model, verified.measured, blobs)
        request = verified.measured.request
        # The first runs at the sizes of these inputs.
        request = dataclasses.replace(
            request,
            candidates=request.candidates[:1],
            floors_ns=request.floors_ns[:1],
            verifies=False,
        )
        if (count := len(request.blobs() | rival.blobs())) > _MOST_BLOBS:
            raise _too_many(count)
        for engine in engines:
            asked = dataclasses.replace(request, rival=dataclasses.replace(rival, engine=engine))
            try:
                result = _report_of(engine, asked, runner.measure(asked, blobs))
            except NoDeviceError as error:
                listener(Warned(_unraced(engine, error)))
                continue
            listener(result)
            results.append(result)
    except (UsageError, StorageError) as error:
        listener(Warned(_unraced(" and ".join(engines), error)))
    return results


def _unraced(engine: str, error: FarrierError) -> str:
    way_on = f"; {error.hint}" if error.hint else ""
    return f"the model is not raced with {engine}: {error.message}{way_on}"


def _rival(model: Model, measured: Measured, blobs: Blobs) -> Rival:
    """Return the request to time another engine, without the name of the engine. Raises UsageError,
    StorageError."""
    if measured.strings:
        raise UsageError("it takes or returns strings")
    if measured.sequences:
        raise UsageError("it returns sequences")
    return Rival(
        "",
        _files(model, blobs),
        _tensors(measured.inputs, blobs),
        _tensors(measured.outputs, blobs),
        tolerance=_ROOM * measured.request.policy.tolerance,
    )


def _files(model: Model, blobs: Blobs) -> tuple[tuple[str, str], ...]:
    """Return the model's files as blobs: pairs of the location and the sha256. Raises UsageError,
    StorageError."""
    files = model.files
    if len(files) > _MOST_BLOBS:
        raise _too_many(len(files))
    named = [("", blobs.put(model.message))] if model.path is None else []
    for location, path in files:
        digest = digest_of_file(path)
        blobs.lend(digest, path)
        named.append((location, digest))
    return tuple(named)


def _too_many(count: int) -> UsageError:
    return UsageError(
        f"it takes {count} files, inputs and outputs, and a device is given {_MOST_BLOBS} at most"
    )


def _tensors(arrays: Mapping[str, npt.NDArray[Any]], blobs: Blobs) -> tuple[Tensor, ...]:
    tensors = []
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        dtype = DType.from_numpy(array.dtype).value
        tensors.append(Tensor(name, dtype, array.shape, blobs.put(data)))
    return tuple(tensors)


def _report_of(engine: str, request: MeasureRequest, result: MeasureResult) -> Raced:
    """Return the report of a race against `engine`. It contains times only if the device is not
    emulated."""
    threads, device, rival = request.policy.threads, result.device, result.rival
    if result.fault is not None:
        note = f"no device raced it: {result.fault}: {result.message}"
        return Raced(engine, "", device, threads, note=note)
    if rival is None:
        note = "the device did not say how it did; the broker may be older than its agent"
        return Raced(engine, "", device, threads, note=note)
    error = rival.max_error if math.isfinite(rival.max_error or 0.0) else None
    raced = Raced(engine, rival.version, device, threads, max_error=error)
    pairs = [pair for pair in zip(rival.ours_ns, rival.rounds_ns, strict=False) if all(pair)]
    if rival.message or not pairs or result.emulated:
        return dataclasses.replace(raced, note=rival.message or "it was not timed")
    ours = [ns / 1e6 for own, _ in pairs for ns in own]
    theirs = [ns / 1e6 for _, other in pairs for ns in other]
    return dataclasses.replace(
        raced, ms=_latency(theirs), ours_ms=_latency(ours), ratio=ratio(*zip(*pairs, strict=True))
    )


def _latency(samples: Sequence[float]) -> dict[str, float]:
    low, median, high = (float(p) for p in np.percentile(samples, (10, 50, 90)))
    return {"median": median, "p10": low, "p90": high}
