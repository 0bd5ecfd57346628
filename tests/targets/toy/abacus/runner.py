"""Measure by running: beads neither crash nor hang."""

from __future__ import annotations

import contextlib
import os
import time

from abacus.devices import Table
from farrier_device.arguments import Arguments
from farrier_device.blob import Blob
from farrier_device.devices.device import DeviceError
from farrier_device.measurement import CandidateResult, MeasureResult, Status
from farrier_device.measuring import Candidates


class InProcessRunner:
    """Implements `farrier.measure.Runner`."""

    devices = None

    def measure(self, request, blobs, cancelled=None):
        begin = time.monotonic()
        with contextlib.ExitStack() as opened:
            table = opened.enter_context(contextlib.closing(Table()))
            (code,) = request.code
            file = os.open(blobs.path(code.blob), os.O_RDONLY)
            opened.callback(os.close, file)
            try:
                table.load([(code, file)], request.policy.threads, ())
            except DeviceError as unfit:
                rejected = CandidateResult(Status.REJECTED, message=str(unfit))
                return MeasureResult((rejected,) * len(request.candidates), device="beads")
            names = {name for each in request.candidates for name in _blobs_of(each)}
            held = {
                name: opened.enter_context(
                    contextlib.closing(Blob(os.open(blobs.path(name), os.O_RDONLY)))
                )
                for name in names
            }
            candidates, arguments = Candidates(table, request.policy, held), Arguments(table)
            results = tuple(
                candidates.measure(candidate, arguments, lambda: None)
                for candidate in request.candidates
            )
        return MeasureResult(results, device="beads", run_s=time.monotonic() - begin)

    def close(self):
        pass


def _blobs_of(candidate):
    for argument in candidate.args:
        yield from filter(None, (argument.blob, argument.expected))
