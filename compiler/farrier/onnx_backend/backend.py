"""ONNX's standard backend interface (onnx.backend.base), implemented by compiled code.

    import farrier.onnx_backend as backend
    (y,) = backend.prepare(model).run([x])

The arguments of this interface are protobuf messages: except for the importer, only this module
imports onnx.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from farrier.errors import InputMismatchError, UnresolvedShapeError, UsageError
from farrier.frontends.onnx.importer import inspect
from farrier.ir.strings import codes_of, strings_of
from farrier.options import CompileOptions
from farrier.options.shapes import GivenShape
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact

Array: TypeAlias = npt.NDArray[Any]
Run: TypeAlias = Callable[[Artifact, dict[str, Array]], dict[str, Array]]
Key: TypeAlias = tuple[tuple[tuple[int, ...], bytes], ...]


class PreparedModel(BackendRep):  # type: ignore[misc]
    """A model that is compiled for every combination of input shapes that it is run with.

    Inputs whose values decide shapes (such as axes) are constants of a compilation: compiled code
    is cached by the shapes of the other inputs and the values of these.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        threads: int = 0,
        target: str = "host",
        run: Run = Artifact.run,
    ) -> None:
        """Compile now if all shapes are static. With `threads` 0 there is one thread per core.
        `run` executes artifacts if this machine is not the target.

        Raises FarrierError if the model cannot be compiled.
        """
        self._model, self._threads, self._target, self._run = model, threads, target, run
        summary = inspect(model.SerializeToString())
        self._inputs = summary.inputs
        self._outputs = summary.outputs
        self._strings = frozenset(d.name for d in self._inputs if d.is_strings)
        self._deciding: set[str] = set()
        self._artifacts: dict[Key, Artifact] = {}
        fixed = {d.name: _fixed(d.dims) for d in self._inputs}
        shapes = {name: shape for name, shape in fixed.items() if shape is not None}
        if len(shapes) == len(fixed):
            try:
                self._artifact({name: np.empty(shape) for name, shape in shapes.items()})
            except UnresolvedShapeError as error:
                self._deciding.update(error.deciding)
                if not error.deciding:
                    raise

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """Return the outputs as a named tuple. `inputs` are arrays in the model's order, or by
        name.

        Raises InputMismatchError, and FarrierError if the model cannot be compiled for these
        shapes.
        """
        arrays = self._by_name(inputs)
        results = self.named(arrays)
        outputs: tuple[Array, ...] = namedtupledict("Outputs", self._outputs)(
            *(results[name] for name in self._outputs)
        )
        return outputs

    def _by_name(self, inputs: Any) -> dict[str, Array]:
        names = [declared.name for declared in self._inputs]
        if isinstance(inputs, Mapping):
            arrays = dict(inputs)
        else:
            listed = inputs if isinstance(inputs, Sequence) else [inputs]
            if len(listed) != len(names):
                raise InputMismatchError(f"the model takes {len(names)} inputs, not {len(listed)}")
            arrays = dict(zip(names, listed, strict=True))
        return {
            name: strings_of(codes_of(array)) if name in self._strings else np.asarray(array)
            for name, array in arrays.items()
        }

    def named(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs by name. Raises as `run` does."""
        while True:
            try:
                artifact = self._artifact(arrays)
                break
            except UnresolvedShapeError as error:
                if not set(error.deciding) - self._deciding:
                    raise
                self._deciding.update(error.deciding)
        return self._run(artifact, {n: a for n, a in arrays.items() if n not in self._deciding})

    def _artifact(self, arrays: Mapping[str, Array]) -> Artifact:
        key = tuple(
            (array.shape, array.tobytes() if name in self._deciding else b"")
            for name, array in arrays.items()
        )
        if key not in self._artifacts:
            self._artifacts[key] = self._compile(arrays)
        return self._artifacts[key]

    def _compile(self, arrays: Mapping[str, Array]) -> Artifact:
        shapes: dict[str, GivenShape] = {
            # One artifact serves all widths.
            name: (*array.shape, "?") if name in self._strings else array.shape
            for name, array in arrays.items()
            if name not in self._deciding
        }
        if arrays and not shapes:
            raise UnresolvedShapeError(
                "every input decides a shape: nothing that can be compiled ahead is left"
            )
        model = self._model
        if self._deciding:
            model = onnx.ModelProto()
            model.CopyFrom(self._model)
            for name in sorted(self._deciding):
                value = arrays[name].astype(object) if name in self._strings else arrays[name]
                model.graph.initializer.append(numpy_helper.from_array(value, name))
        options = CompileOptions(self._target, shapes, threads=self._threads, verify=False)
        return compile_model(model.SerializeToString(), options, name=model.graph.name or "model")


class PreparedSequences(BackendRep):  # type: ignore[misc]
    """A model with sequences or optionals among its inputs or outputs. It is compiled as a model of
    tensors, once for each combination of sequence lengths that it is run with."""

    def __init__(
        self,
        model: onnx.ModelProto,
        threads: int = 0,
        target: str = "host",
        run: Run = Artifact.run,
    ) -> None:
        self._model, self._how = model, (threads, target, run)
        self._prepared: dict[tuple[str, ...], PreparedModel] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs: arrays, lists of arrays for sequences, None for an absent optional.
        `inputs` have the same forms, in the model's order."""
        values = dict(zip((info.name for info in self._model.graph.input), inputs, strict=True))
        arrays = {
            name: np.asarray(array)
            for key, value in values.items()
            for name, array in _tensors(key, value)
        }
        key = tuple(arrays)
        if key not in self._prepared:
            self._prepared[key] = PreparedModel(_of_tensors(self._model, values), *self._how)
        results = dict(self._prepared[key].named(arrays))
        return tuple(_gathered(info, results) for info in self._model.graph.output)


Prepared: TypeAlias = PreparedModel | PreparedSequences


def prepared(
    model: onnx.ModelProto, threads: int, target: str = "host", run: Run = Artifact.run
) -> Prepared:
    """Return a PreparedModel, or a PreparedSequences if the model has inputs or outputs that are
    not tensors."""
    infos = (*model.graph.input, *model.graph.output)
    kinds = {info.type.WhichOneof("value") for info in infos}
    if kinds <= {"tensor_type", None}:
        return PreparedModel(model, threads, target, run)
    return PreparedSequences(model, threads, target, run)


def _tensors(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the tensors of an input's value as pairs (name, tensor). The items of a list have
    numbered names: `y.0`, `y.1`, …; None has no tensors."""
    if value is None:
        return []
    if isinstance(value, list):
        return [(f"{name}.{position}", item) for position, item in enumerate(value)]
    return [(name, value)]


def _of_tensors(model: onnx.ModelProto, values: Mapping[str, Any]) -> onnx.ModelProto:
    """Return the model with its inputs replaced by tensor inputs for `values`; additional nodes at
    the start construct sequences and optionals from the tensors."""
    converted = onnx.ModelProto()
    converted.CopyFrom(model)
    del converted.graph.input[:]
    del converted.graph.node[:]
    for info in model.graph.input:
        name, value = info.name, values[info.name]
        for tensor, array in _tensors(name, value):
            kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
            converted.graph.input.append(
                helper.make_tensor_value_info(tensor, kind, np.shape(array))
            )
        names = [tensor for tensor, _ in _tensors(name, value)]
        if value is None:
            element = info.type.optional_type.elem_type
            converted.graph.node.append(helper.make_node("Optional", [], [name], type=element))
        elif isinstance(value, list):
            op = "SequenceConstruct" if names else "SequenceEmpty"
            converted.graph.node.append(helper.make_node(op, names, [name]))
    converted.graph.node.extend(model.graph.node)
    return converted


def _gathered(info: onnx.ValueInfoProto, results: Mapping[str, Array]) -> Any:
    """Return the value of an output, from the tensors that the compiled model returned: an array, a
    list for a sequence, or None for an absent optional. The items of a sequence `y` are the tensors
    `y.0`, `y.1`, …."""
    if info.name in results:
        return results[info.name]
    items = [array for name, array in results.items() if name.rpartition(".")[0] == info.name]
    kind = info.type.WhichOneof("value")
    return None if kind == "optional_type" and not items else items


class FarrierBackend(Backend):  # type: ignore[misc]
    """The implementation of ONNX's backend interface."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Return the model, ready to run. `threads` is the number of threads to use, 0 for one per
        core. It is compiled for `target`, by default this machine; `run` executes artifacts of
        another target.

        Raises UsageError for a device other than the CPU, FarrierError if the model cannot be
        compiled.
        """
        if not cls.supports_device(device):
            raise UsageError(f"device {device!r} is not supported", hint='device="CPU"')
        target, run = str(kwargs.get("target", "host")), kwargs.get("run", Artifact.run)
        return prepared(model, int(kwargs.get("threads", 0)), target, run)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Return the outputs of a single node, in opset `opset_version` or the newest."""
        names = [name for name in node.input if name]
        arrays = [np.asarray(array) for array in inputs]
        infos = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, results)
        version = int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))
        opsets = [helper.make_opsetid(node.domain, version)]
        if node.domain not in ("", "ai.onnx"):
            opsets.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
        model = helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Check whether `device` (such as "CPU" or "CUDA:1") is the CPU."""
        return bool(Device(device).type == DeviceType.CPU)


def _fixed(dims: tuple[int | str, ...] | None) -> tuple[int, ...] | None:
    """Return the dims as a static shape, or None if one of them is symbolic."""
    shape = tuple(dim for dim in dims or () if isinstance(dim, int))
    return shape if dims is not None and len(shape) == len(dims) else None


is_compatible = FarrierBackend.is_compatible
prepare = FarrierBackend.prepare
run_model = FarrierBackend.run_model
run_node = FarrierBackend.run_node
supports_device = FarrierBackend.supports_device
