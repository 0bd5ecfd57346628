"""Read tensor programs from a syntax tree."""

from __future__ import annotations

import ast

from farrier.ir.dim import symbols
from farrier.ir.expr import Axis, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.text.expressions import ExprReader, read_axes
from farrier.ir.text.syntax import Malformed, look_up, read_arguments, read_returned
from farrier.ir.text.types import read_buffer


class ProgramReader(ExprReader):
    def program(self, definition: ast.FunctionDef) -> TensorProgram:
        inputs = tuple(
            read_buffer(name, node, self.dims) for name, node in read_arguments(definition)
        )
        self.buffers |= {buffer.name: buffer for buffer in inputs}
        stages: list[Stage] = []
        body, results = read_returned(definition)
        for statement in body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=None):
                    self.buffers[name] = read_buffer(name, annotation, self.dims)
                case ast.For(target=target, iter=extents, body=[store]):
                    stages.append(self._stage(store, read_axes(target, extents, self.dims)))
                case _:
                    stages.append(self._stage(statement, ()))
        outputs = tuple(look_up(self.buffers, result) for result in results)
        dims = tuple(symbols(self.dims.values()))
        return TensorProgram(definition.name, inputs, tuple(stages), outputs, dims)

    def _stage(self, store: ast.stmt, axes: tuple[Axis, ...]) -> Stage:
        if not isinstance(store, ast.Assign):
            raise Malformed(store, "expected buffer[…] = …")
        buffer, indices = self.element(store.targets[0])
        if indices != tuple(Var(axis.name) for axis in axes):
            raise Malformed(store, f"a stage stores {buffer.name} at its axes, in order")
        return Stage(buffer, axes, self.expr(store.value))
