"""The inputs and outputs of a program: names, types, and open dims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from farrier.artifact.declaration import Declaration, DeclaredValue, tensor_type
from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.builder import Declared
from farrier.frontends.torch.program import Formula, Program, Ref, TensorMeta
from farrier.frontends.torch.symbols import Linear, linear
from farrier.frontends.torch.table import VIEWS, writes_in_place
from farrier.ir.types import DType
from farrier.options.shapes import DEFAULT_HIGH, MAX_EXTENT, GivenShape, parse_dim

_MOST_LEAVES = 10_000


class Interface:
    """The interface of a program. Buffers that the program modifies are both inputs and outputs."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.changed = _changed(program)
        self.inputs: dict[str, str] = {}  # Names of inputs, by names of the graph's values.
        for spec in program.inputs:
            if spec.kind == "user_input" and isinstance(spec.value, Ref):
                self.inputs[spec.value.name] = spec.value.name
            elif spec.kind == "buffer" and spec.target in self.changed:
                self.inputs[spec.value.name] = spec.target

    def declared(self) -> list[Declared]:
        """Return the inputs with a supported dtype. Raises FarrierError for a value that cannot be
        an input."""
        return [
            Declared(name, meta.dtype, tuple(self._dim(name, size) for size in meta.sizes))
            for name, meta in self._metas()
            if meta.dtype is not None
        ]

    def shapes(self, fixed: Mapping[str, GivenShape]) -> dict[str, GivenShape]:
        """Return the shape of each input with open dims: the user's shape in `fixed`, or else the
        declared dims with the program's ranges."""
        shapes = dict(fixed)
        for declared in self.declared():
            dims = declared.dims or ()
            if declared.name not in fixed and any(isinstance(dim, str) for dim in dims):
                shapes[declared.name] = tuple(self._ranged(dim) for dim in dims)
        return shapes

    def raised(self, fixed: Mapping[str, GivenShape]) -> set[str]:
        """Return the names of open dims whose least size in the program is 2. The exporter sets
        this limit by default, so the module may still be valid for size 1. Inputs for which the
        user fixed a shape are not considered."""
        return {
            dim
            for declared in self.declared()
            if declared.name not in fixed
            for dim in declared.dims or ()
            if isinstance(dim, str) and self._program.ranges.get(dim, (None,))[0] == 2
        }

    def outputs(self) -> Iterator[tuple[str, Any]]:
        """Yield the outputs as (name, value)."""
        users = [spec.value for spec in self._program.outputs if spec.kind == "user_output"]
        names = _leaf_names(self._program.output_tree)
        if len(names) != len(users) or len(set(names)) != len(names):
            names = [f"output_{place}" for place in range(len(users))]
        yield from zip(names, users, strict=True)
        for target, value in self.changed.items():
            yield f"{target}.new", value

    def declaration(self) -> Declaration:
        """Return the interface as the program declares it: its inputs, and the outputs that are
        tensors or sizes."""
        inputs = (
            DeclaredValue(declared.name, tensor_type(str(declared.dtype)), declared.dims or ())
            for declared in self.declared()
        )
        return Declaration(tuple(inputs), tuple(self._outputs()), producer=self._program.producer)

    def _outputs(self) -> Iterator[DeclaredValue]:
        for name, value in self.outputs():
            meta = self.meta(value)
            if meta is not None and meta.dtype is not None:
                dims = (size if isinstance(size, int) else None for size in meta.sizes)
                yield DeclaredValue(name, tensor_type(str(meta.dtype)), tuple(dims))
            elif value is not None:
                yield DeclaredValue(name, tensor_type(str(DType.I64)), ())

    def meta(self, value: Any) -> TensorMeta | None:
        """Return the type of a value of the graph, or None if it is not a tensor."""
        return self._program.graph.tensors.get(value.name) if isinstance(value, Ref) else None

    def _metas(self) -> Iterator[tuple[str, TensorMeta]]:
        for value, name in self.inputs.items():
            meta = self._program.graph.tensors.get(value)
            if meta is None:
                raise UnsupportedOperatorError(
                    f"the input {name!r} is a number, and inputs are tensors",
                    hint="pass a tensor of no dimensions, or a number that the export bakes in",
                )
            if meta.dtype is None:
                raise UnsupportedOperatorError(
                    f"the input {name!r} has the element type {meta.type_name}, which Farrier "
                    "does not have",
                    hint="export a module that takes real numbers",
                )
            yield name, meta

    def _dim(self, name: str, size: int | Formula) -> int | str:
        if isinstance(size, int):
            return size
        formula = linear(size.text)
        if formula is None or not formula.terms:
            raise InvalidModelError(
                f"the input {name!r} has a size that is not a sum of open sizes: {size.text}",
                hint="give the dim a name of its own in dynamic_shapes",
            )
        if any(factor < 0 for _, factor in formula.terms) or formula.constant < 0:
            raise InvalidModelError(
                f"the input {name!r} has a size that subtracts: {size.text}",
                hint="give the smaller dim a name in dynamic_shapes, and the larger one as its sum",
            )
        if len(formula.terms) == 1 and not formula.constant and self._is_scaled(formula):
            return formula.terms[0][0]  # The name stands for the multiple; its range has a step.
        return _text(formula)

    def _ranged(self, dim: int | str) -> int | str:
        """Return a dim with the range that the program declares for it, as text for `parse_dim`:
        `s0:1..64:1`. Numbers and formulas are returned unchanged."""
        if isinstance(dim, int) or not dim.isidentifier():
            return dim
        low, high = self._program.ranges.get(dim, (None, None))
        step = self._steps().get(dim, 1)
        # The exporter never traces with a size of 1: a least size of 2 is its default.
        least = 1 if low is None or low <= 2 else low
        most = MAX_EXTENT if high is None else high
        if high is None:
            most = max(least, DEFAULT_HIGH)
        text = f"{dim}:{least * step}..{min(most * step, MAX_EXTENT)}:{step}"
        parse_dim(text)  # Raises UsageError for a range that is empty.
        return text

    def _is_scaled(self, formula: Linear) -> bool:
        ((name, factor),) = formula.terms
        return self._steps().get(name) == factor

    def _steps(self) -> dict[str, int]:
        """Return each symbol that occurs in sizes only as one multiple, with its factor: `{"s0":
        2}` if all sizes with s0 are 2 · s0."""
        factors: dict[str, set[int]] = {}
        for _, meta in self._metas():
            for size in meta.sizes:
                formula = linear(size.text) if isinstance(size, Formula) else None
                if formula is None:
                    continue
                alone = len(formula.terms) == 1 and not formula.constant
                for name, factor in formula.terms:
                    factors.setdefault(name, set()).add(factor if alone else 0)
        return {name: min(own) for name, own in factors.items() if len(own) == 1 and min(own) > 1}


def _changed(program: Program) -> dict[str, Ref]:
    """Return the buffers and inputs that the program modifies, with their final values. The
    program's signature lists some of them; others are written in place by operators."""
    changed = {
        spec.target: spec.value
        for spec in program.outputs
        if spec.kind in ("buffer_mutation", "user_input_mutation")
    }
    owners: dict[str, str] = {}  # The buffer or input of which a value is a view.
    names: dict[str, str] = {}
    for spec in program.inputs:
        if isinstance(spec.value, Ref) and spec.kind in ("buffer", "user_input"):
            owners[spec.value.name] = spec.value.name
            names[spec.value.name] = spec.target or spec.value.name
    for call in program.graph.calls:
        first = call.positional[0] if call.positional else None
        owner = owners.get(first.name) if isinstance(first, Ref) else None
        if owner is None:
            continue
        if writes_in_place(call.target):
            changed.setdefault(names[owner], Ref(owner))
        elif call.target not in VIEWS:
            continue
        for output in call.outputs:
            owners.update(dict.fromkeys([output] if isinstance(output, str) else output, owner))
    return changed


def _text(formula: Linear) -> str:
    terms = [name if factor == 1 else f"{factor}*{name}" for name, factor in formula.terms]
    return "+".join([*terms, str(formula.constant)] if formula.constant else terms)


def _leaf_names(tree: str) -> list[str]:
    """Return names of the leaves of a pytree: keys of dicts, and positions in tuples."""
    try:
        _, root = json.loads(tree) if tree else (0, None)
        names = [] if root is None else list(_leaves(root, ""))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []
    return names if names != [""] else ["output"]


def _leaves(node: Mapping[str, Any], prefix: str) -> Iterator[str]:
    if node["type"] is None:
        yield prefix
        return
    children = node["children_spec"][:_MOST_LEAVES]
    keys = _keys(node, len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _leaves(child, f"{prefix}.{key}" if prefix else key)


def _keys(node: Mapping[str, Any], count: int) -> list[str]:
    context = json.loads(node["context"]) if isinstance(node["context"], str) else None
    if isinstance(context, list) and len(context) == count:
        return [str(key) for key in context]
    return [f"output_{place}" for place in range(count)]
