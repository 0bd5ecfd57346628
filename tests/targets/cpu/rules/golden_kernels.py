"""The kernels of `tests/golden/loops/*.txt`: a region, how it is scheduled, and the loops.

    # target: x86-64-v3            one of TARGETS
    # constant: w, b               inputs whose content is known when the kernel is compiled
    # decisions: rows=2, unroll=1  of the space rule that the file is named after
    # within: 1e-2                 if values rounded on the way are off by more than f32 is
    @graph …
    # schedule
    the steps of the schedule, as the rule makes them
    # loops
    the function, ready for code generation

What stands before `# schedule` is written by hand, and `pytest --update-golden` the rest.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np

from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.parser import parse_ir
from farrier.ir.tensor import TensorProgram
from farrier.lower.region import lower_region
from farrier.ops.registry import lookup
from farrier.ops.winograd import filtering_of, transformed
from farrier.space.space import Space
from farrier.targets import Target
from farrier.targets.cpu.rules import for_program
from farrier.targets.x86 import X86Target
from tests.lowering import final_loops

GOLDEN = Path(__file__).parents[3] / "golden"
PATHS = sorted((GOLDEN / "loops").glob("*.txt"))
THREADS = 2
# Machines that are written down: the texts depend on no other.
TARGETS = {
    "x86-64-v3": X86Target(
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v3",
        features=(),
        vector_bits=256,
        registers=16,
        cores=2,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=16 << 20,
    ),
    "x86-64-v4 with AMX": X86Target(
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v4",
        features=("amx_bf16", "amx_int8", "amx_tile", "avx512_bf16", "avx512_vnni"),
        vector_bits=512,
        registers=32,
        cores=2,
        l1_bytes=48 << 10,
        l2_bytes=2 << 20,
        l3_bytes=32 << 20,
    ),
}


@dataclasses.dataclass(frozen=True)
class GoldenKernel:
    """One file: what it asks for, and what it holds."""

    name: str
    header: str  # The text before `# schedule`.
    schedule: str
    loops: str

    @classmethod
    def of(cls, path: Path) -> GoldenKernel:
        header, _, rest = path.read_text().partition("# schedule\n")
        schedule, _, loops = rest.partition("# loops\n")
        return cls(path.stem, header, schedule, loops)

    @functools.cached_property
    def graph(self) -> Graph:
        graph = parse_ir(self.header)
        assert isinstance(graph, Graph)
        return graph

    @property
    def target(self) -> Target:
        return TARGETS[self._line("target")]

    @functools.cached_property
    def program(self) -> TensorProgram | Function:
        constants = [name for name in self._line("constant").split(", ") if name]
        return lower_region(self.graph, self.name, constants)

    @functools.cached_property
    def space(self) -> Space:
        return for_program(self.program, self.target, THREADS)

    @property
    def decisions(self) -> dict[str, int]:
        pairs = (pair.split("=") for pair in self._line("decisions").split(", "))
        return {knob: int(value) for knob, value in pairs}

    @functools.cached_property
    def function(self) -> Function:
        """Scheduled and finalized."""
        return final_loops(self.space, self.decisions)

    @property
    def within(self) -> float:
        """The absolute tolerance of a result, next to the relative one."""
        return float(self._line("within")) if "# within:" in self.header else 1e-5

    def inputs(self) -> dict[str, np.ndarray]:
        """Random arrays for the region's inputs, by name."""
        rng = np.random.default_rng(0)
        arrays = {}
        for value in self.graph.inputs:
            array = rng.standard_normal(value.type.static_shape)
            arrays[value.name] = array.astype(value.type.dtype.numpy)
        for node in self.graph.nodes:
            if node.op == "WinogradConv":  # Its filters are those of a convolution, transformed.
                filters = rng.standard_normal((*arrays[node.inputs[1].name].shape[2:], 3, 3))
                arrays[node.inputs[1].name] = transformed(filters, filtering_of(dict(node.attrs)))
        return arrays

    def reference(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The region's outputs, by the reference of each of its operators, in float64."""
        values = {name: np.asarray(array, np.float64) for name, array in inputs.items()}
        values |= {constant.value.name: constant.data for constant in self.graph.constants}
        for node in self.graph.nodes:
            arrays = [None if value is None else values[value.name] for value in node.inputs]
            results = lookup(node.op).reference(arrays, dict(node.attrs))
            values |= {v.name: array for v, array in zip(node.outputs, results, strict=True)}
        return [values[value.name] for value in self.graph.outputs]

    def _line(self, key: str) -> str:
        """The value of the header's line `# <key>:`."""
        start = f"# {key}:"
        actual = [line for line in self.header.splitlines() if line.startswith(start)]
        assert len(actual) == 1, f"{self.name}.txt has {len(actual)} lines `{start}`"
        return actual[0].removeprefix(start).strip()
