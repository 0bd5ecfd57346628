"""Measure by running: beads neither crash nor hang."""

from __future__ import annotations

import time

import numpy as np

from abacus.program import Program
from farrier.ir.types import DType
from farrier_device.measurement import CandidateResult, MeasureResult, Role, Status
from farrier_device.memory import aligned_buffer


class InProcessRunner:
    """Implements `farrier.measure.Runner`."""

    devices = None

    def measure(self, request, blobs, cancelled=None):
        begin = time.monotonic()
        program = Program(blobs.path(request.code[0].blob).read_bytes())
        results = tuple(
            _measured(program, candidate, request.policy, blobs) for candidate in request.candidates
        )
        return MeasureResult(results, device="beads", run_s=time.monotonic() - begin)

    def close(self):
        pass


def _measured(program, candidate, policy, blobs):
    if not all(program.has(launch.symbol) for launch in candidate.launches):
        return CandidateResult(Status.REJECTED, message=f"no {candidate.name}")
    memory = [aligned_buffer(argument.nbytes) for argument in candidate.args]
    for argument, buffer in zip(candidate.args, memory, strict=True):
        if argument.role is Role.INPUT:
            buffer.view[:] = blobs.path(argument.blob).read_bytes()
    addresses = [buffer.address for buffer in memory]
    for launch in candidate.prepare:
        program.run(launch.symbol, addresses)
    whole = [(launch.symbol, addresses) for launch in candidate.launches]
    parts = [
        (part.symbol, [addresses[at] + offset for at, offset in part.args])
        for part in candidate.parts
    ]
    rounds = [
        [_timed(program, *part) for part in parts or whole] for _ in range(policy.min_repeats)
    ]
    error = max(
        (
            _error(argument, buffer, blobs)
            for argument, buffer in zip(candidate.args, memory, strict=True)
            if argument.role is Role.OUTPUT
        ),
        default=None,
    )
    if error is not None and not error <= policy.tolerance:
        return CandidateResult(Status.WRONG, max_error=error, message=f"off by {error:.1e}")
    return CandidateResult(
        Status.OK,
        tuple(map(sum, rounds)),
        error,
        parts_ns=tuple(zip(*rounds, strict=True)) if parts else (),
    )


def _timed(program, symbol, addresses):
    begin = time.perf_counter_ns()
    program.run(symbol, addresses)
    return max(1, time.perf_counter_ns() - begin)


def _error(argument, buffer, blobs):
    """As of `Library.max_error`; nothing is padded where there are no blocks."""
    dtype = DType(argument.dtype).numpy
    got = np.frombuffer(buffer.view, dtype).astype(float)
    expected = np.frombuffer(blobs.path(argument.expected).read_bytes(), dtype).astype(float)
    return float(np.max(abs(got - expected)) / max(np.max(abs(expected)), 1e-30))
