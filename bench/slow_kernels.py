"""List the kernels that are compiled to scalar, single-threaded code and take at least 2% of their
model's time.

    python -m bench.slow_kernels [--suite] [MODEL …]

A MODEL is an ONNX file, a folder of them (`bench.exports` writes one) or a name of
`bench.models.wheel`; `--suite` adds the node tests of ONNX's own backend suite. No code is
generated and nothing is measured: each model is scheduled for this machine and two threads, for all
sizes and for the typical sizes, and the shares are predicted by the schedule spaces. The command
fails if a listed operator is not accepted, with a reason, in docs/develop/measuring.md under
"Kernels in scalar code".
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnx.backend.test.case import node as node_suite

from bench.public import models
from farrier.compile_pool.slow import SlowKernel, slow_of_forms
from farrier.errors import FarrierError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model, model_of
from farrier.model_tuning.hot import for_any_size, hot_sizes, shapes_at
from farrier.model_tuning.variant import make_variant
from farrier.options import TYPICAL_ALONE
from farrier.passes import Settings, prepare
from farrier.targets import parse_target

_THREADS = 2

# The operators whose kernels may stay serial and scalar, with the reason.
ACCEPTED: Mapping[str, str] = {
    "Unique": "equal elements meet in a sort, and each is a group or joins the one before",
    "CumSum": "a single line: each sum waits for the one before it",
    "TopK": "a single row: each element is compared with the best ones so far",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A slow kernel of a model."""

    model: str
    kernel: SlowKernel

    @property
    def operator(self) -> str:
        """The accepted operator to which the kernel belongs; "" if its operators are not
        accepted."""
        name = self.kernel.kernel
        return next((op for op in ACCEPTED if name.startswith(op.lower())), "")

    def __str__(self) -> str:
        accepted = ACCEPTED.get(self.operator)
        return f"{self.model}: {self.kernel}" + (f" (accepted: {accepted})" if accepted else "")


def slow_kernels(model: Model | bytes) -> list[SlowKernel]:
    """Return a model's slow kernels with default schedules, for all sizes and for the typical ones.
    Raises FarrierError for a model that does not compile."""
    settings = Settings(parse_target("host"), _THREADS)
    model = model_of(model) if isinstance(model, bytes) else model
    imported = import_model(model)
    hot = hot_sizes(imported.dims, TYPICAL_ALONE) if imported.dims else []
    shared = for_any_size(settings, hot)
    forms = [make_variant(prepare(imported.graph, shared), shared).choices]
    for sizes in hot:
        graph = import_model(model, shapes_at(imported, sizes)).graph
        forms.append(make_variant(prepare(graph, settings), settings).choices)
    return [kernel for kernels in slow_of_forms(forms) for kernel in kernels]


def suite() -> Iterator[tuple[str, bytes]]:
    """Yield the name and model of each node test of ONNX's backend suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The suite's expected outputs overflow in numpy.
        for case in node_suite.collect_testcases(None):
            if case.model is not None:
                yield case.name, case.model.SerializeToString()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.slow_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--suite", action="store_true", help="ONNX's node tests as well")
    arguments = parser.parse_args(words)
    findings: list[Finding] = []
    count = 0
    try:
        chosen = models(arguments.models) if arguments.models or not arguments.suite else []
    except FarrierError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return refusal.exit_code
    for name, model in [*_files(chosen), *(suite() if arguments.suite else ())]:
        try:
            kernels = slow_kernels(model)
        except FarrierError as refusal:
            if not arguments.suite:
                print(f"{name} is left out: {refusal.message.splitlines()[0]}", flush=True)
            continue
        count += 1
        for kernel in kernels:
            findings.append(Finding(name, kernel))
            print(findings[-1], flush=True)
    left = [finding for finding in findings if not finding.operator]
    print(f"{count} models, {len(findings)} slow kernels, {len(left)} of them not accepted")
    return 1 if left else 0


def _files(chosen: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, Model]]:
    for name, path in chosen:
        yield name, Model.of_path(path)


if __name__ == "__main__":
    sys.exit(main())
