"""The tests of ONNX's backend suite, each with the operator that it tests."""

from __future__ import annotations

import dataclasses
import re
import unittest
import warnings
from collections.abc import Callable
from typing import Any

import onnx
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests

from farrier.onnx_backend import FarrierBackend, Prepared, Run
from farrier.runtime.artifact import Artifact


def _backend(target: str, run: Run) -> type[FarrierBackend]:
    """Return a backend whose models use a single thread, because tests run in parallel."""

    class Backend(FarrierBackend):
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
            return super().prepare(model, device, threads=1, target=target, run=run)

    return Backend


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A test of the suite; `run` raises an error if it fails. `suite` is node, simple, light, …;
    `operator` is the operator of a node test, "" in other suites."""

    name: str
    suite: str
    operator: str
    run: Callable[[], None]


_SUITES = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendRealModelTest": "light",
}


def load(target: str = "host", run: Run = Artifact.run) -> list[Case]:
    """Return all tests for the CPU, ordered by suite and name. `run` executes the artifacts for
    `target`, which may be another machine."""
    with warnings.catch_warnings():
        # The warnings are numpy's, while the expected outputs are computed.
        warnings.simplefilter("ignore")
        classes = BackendTest(_backend(target, run), __name__).test_cases
        operators = _operators()
    collected = []
    for title, suite in _SUITES.items():
        case = classes[title]
        for method in sorted(unittest.TestLoader().getTestCaseNames(case)):
            name = method.removesuffix("_cpu")
            if method != name:
                collected.append(
                    Case(name, suite, operators.get(name, ""), getattr(case(method), method))
                )
    return collected


def _operators() -> dict[str, str]:
    """Return the operator of every node test. A test of a function operator's body counts for that
    operator."""
    models = {case.name: case.model for case in load_model_tests(kind="node")}
    operators = {}
    for name in models:
        model = models.get(re.sub(r"_expanded(_ver\d+)?$", "", name), models[name])
        (first, *_) = [n for n in model.graph.node if n.op_type != "Constant"] or model.graph.node
        domain = first.domain if first.domain not in ("", "ai.onnx") else ""
        operators[name] = f"{domain}:{first.op_type}" if domain else first.op_type
    return operators
