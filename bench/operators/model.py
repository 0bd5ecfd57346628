"""A model of a single operator: its declaration, and the ONNX file and inputs generated from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

# The newest version that ONNX Runtime 1.20 reads, the oldest release that the benches run on.
IR_VERSION = 10
# The range of random integers, whose products stay exact in every type.
_LOW, _HIGH = -5, 6
_OMITTED = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the operator, as an input or as a constant of the model.

    Floats are normally distributed and multiplied by `scale`; integers are uniform in [`low`,
    `high`), where `high` is the axis's extent for indices. `values` are explicit elements.
    """

    shape: tuple[int, ...]
    dtype: str = "f4"  # numpy's code
    is_constant: bool = False
    scale: float = 1.0
    low: int = _LOW
    high: int = _HIGH
    values: tuple[float, ...] | None = None

    def array(self, rng: np.random.Generator) -> Array:
        """Return the elements, in memory that numpy allocates, without a particular alignment."""
        dtype = np.dtype(self.dtype)
        if self.values is not None:
            return np.array(self.values, dtype).reshape(self.shape)
        if dtype.kind == "f":
            return (rng.standard_normal(self.shape) * self.scale).astype(dtype)
        low, high = (0, 2) if dtype.kind == "b" else (self.low, self.high)
        return rng.integers(low, high, self.shape).astype(dtype)


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorModel:
    """An operator with its operands in order; None is an omitted operand."""

    name: str
    op: str
    operands: tuple[Operand | None, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    opset: int = 21

    @property
    def seed(self) -> int:
        """The seed of the model's constants and inputs, which depends only on the model's name."""
        return int.from_bytes(self.name.encode(), "little") % (1 << 32)

    def build(self) -> bytes:
        """Return the ONNX file's bytes, with inferred shapes of the outputs if possible."""
        rng = np.random.default_rng(self.seed)
        names, inputs, constants = [], [], []
        for position, operand in enumerate(self.operands):
            name = _OMITTED if operand is None else _name(position)
            names.append(name)
            if operand is None:
                continue
            if operand.is_constant:
                constants.append(numpy_helper.from_array(operand.array(rng), name))
            else:
                element = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
                inputs.append(helper.make_tensor_value_info(name, element, operand.shape))
        outputs = [f"y{position}" for position in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, name=self.op, **self.attributes)
        declared = [helper.make_empty_tensor_value_info(output) for output in outputs]
        graph = helper.make_graph([node], self.op, inputs, declared, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
        return bytes(inferred.SerializeToString())

    def inputs(self) -> dict[str, Array]:
        """Return arrays for the model's inputs, by name."""
        rng = np.random.default_rng(self.seed + 1)
        return {
            _name(position): operand.array(rng)
            for position, operand in enumerate(self.operands)
            if operand is not None and not operand.is_constant
        }


def _name(position: int) -> str:
    return f"x{position}"
