"""ONNX's standard backend interface (onnx.backend.base), answered by compiled code.

    import farrier.onnx_backend as backend
    (y,) = backend.prepare(model).run([x])

This module speaks ONNX's own Python interface, whose arguments are protobuf messages: beside the
importer it is the one place that imports onnx.
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
    """A model, compiled for every combination of input shapes that it is run with.

    Inputs whose values decide ranks and the like (axes) are constants of a compilation: the code
    is kept for the shapes of the others and the values of these.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        threads: int = 0,
        target: str = "host",
        run: Run = Artifact.run,
    ) -> None:
        """Compile at once where the model leaves no shape open. `threads` 0: one a core. `run`
        runs artifacts where this machine is not the target.

        Raises FarrierError for what cannot be compiled.
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
        """The outputs, a named tuple. `inputs` are arrays in the model's order, or by name.

        Raises InputMismatchError, and FarrierError where the shapes cannot be compiled.
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
            given = dict(inputs)
        else:
            listed = inputs if isinstance(inputs, Sequence) else [inputs]
            if len(listed) != len(names):
                raise InputMismatchError(f"the model takes {len(names)} inputs, not {len(listed)}")
            given = dict(zip(names, listed, strict=True))
        return {
            name: strings_of(codes_of(array)) if name in self._strings else np.asarray(array)
            for name, array in given.items()
        }

    def named(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The outputs of the compiled model by name; raises as `run` does."""
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
    """A model with sequences or optionals among its inputs or outputs: compiled as one of tensors,
    anew for every number of tensors that it is run with."""

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
        """The outputs: arrays, lists of arrays for sequences, None for an optional that is absent.
        `inputs` are the same, in the model's order."""
        given = dict(zip((info.name for info in self._model.graph.input), inputs, strict=True))
        arrays = {
            name: np.asarray(array)
            for key, value in given.items()
            for name, array in _tensors(key, value)
        }
        key = tuple(arrays)
        if key not in self._prepared:
            self._prepared[key] = PreparedModel(_of_tensors(self._model, given), *self._how)
        found = dict(self._prepared[key].named(arrays))
        return tuple(_gathered(info, found) for info in self._model.graph.output)


Prepared: TypeAlias = PreparedModel | PreparedSequences


def prepared(
    model: onnx.ModelProto, threads: int, target: str = "host", run: Run = Artifact.run
) -> Prepared:
    """The model, ready to run, as what its inputs and outputs are."""
    infos = (*model.graph.input, *model.graph.output)
    kinds = {info.type.WhichOneof("value") for info in infos}
    if kinds <= {"tensor_type", None}:
        return PreparedModel(model, threads, target, run)
    return PreparedSequences(model, threads, target, run)


def _tensors(name: str, value: Any) -> list[tuple[str, Any]]:
    """The tensors of an input, by name; of a sequence, by place as well."""
    if value is None:
        return []
    if isinstance(value, list):
        return [(f"{name}.{position}", item) for position, item in enumerate(value)]
    return [(name, value)]


def _of_tensors(model: onnx.ModelProto, given: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with a tensor input for each tensor in `given`; what makes sequences and optionals
    of them stands before its nodes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.input[:]
    del made.graph.node[:]
    for info in model.graph.input:
        name, value = info.name, given[info.name]
        for tensor, array in _tensors(name, value):
            kind = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
            made.graph.input.append(helper.make_tensor_value_info(tensor, kind, np.shape(array)))
        names = [tensor for tensor, _ in _tensors(name, value)]
        if value is None:
            element = info.type.optional_type.elem_type
            made.graph.node.append(helper.make_node("Optional", [], [name], type=element))
        elif isinstance(value, list):
            op = "SequenceConstruct" if names else "SequenceEmpty"
            made.graph.node.append(helper.make_node(op, names, [name]))
    made.graph.node.extend(model.graph.node)
    return made


def _gathered(info: onnx.ValueInfoProto, found: Mapping[str, Array]) -> Any:
    """An output of a model, of the tensors that the compiled one returns."""
    if info.name in found:
        return found[info.name]
    items = [array for name, array in found.items() if name.rpartition(".")[0] == info.name]
    kind = info.type.WhichOneof("value")
    return None if kind == "optional_type" and not items else items


class FarrierBackend(Backend):  # type: ignore[misc]
    """Farrier behind ONNX's interface."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """The model, ready to run; `threads` is the number it may use, 0 one a core. It is compiled
        for `target`, by default this machine; `run` runs artifacts where that is another.

        Raises UsageError for another device than the CPU, FarrierError for what Farrier does not
        compile.
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
        """The outputs of one node, of the operator's version `opset_version` or the newest."""
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
        """Whether `device` ("CPU", "CUDA:1") is the CPU."""
        return bool(Device(device).type == DeviceType.CPU)


def _fixed(dims: tuple[int | str, ...] | None) -> tuple[int, ...] | None:
    """The dims as a shape, None where one of them is open."""
    shape = tuple(dim for dim in dims or () if isinstance(dim, int))
    return shape if dims is not None and len(shape) == len(dims) else None


is_compatible = FarrierBackend.is_compatible
prepare = FarrierBackend.prepare
run_model = FarrierBackend.run_model
run_node = FarrierBackend.run_node
supports_device = FarrierBackend.supports_device
