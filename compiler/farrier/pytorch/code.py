"""The compiled code of a graph, called with torch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from farrier.pytorch.graph import Result, TensorGraph
from farrier.runtime.artifact import Artifact

# A weight as a call had it: the tensor, its address, and an array over its memory.
Kept: TypeAlias = tuple[torch.Tensor, int, Any]


class Code:
    """A function from tensors to tensors, without copies: input arrays are views of tensors, and
    output tensors are views of the memory that the code has written.

    The array of a weight is cached between calls, and replaced if the weight is another tensor or
    has moved. Writes into the tensor are visible in the array.
    """

    def __init__(self, artifact: Artifact, graph: TensorGraph) -> None:
        self._session = artifact.session()
        taken = {spec.name for spec in artifact.manifest.inputs}
        inputs = [(each.position, each) for each in graph.inputs if each.name in taken]
        self._weights = [(at, each.name) for at, each in inputs if each.is_weight]
        self._others = [(at, each.name) for at, each in inputs if not each.is_weight]
        self._kept: list[Kept | None] = [None] * len(self._weights)
        self._arrays: dict[str, Any] = {}
        results = [spec.name for spec in artifact.manifest.outputs]
        self._written = [(at, f"{e.name}.new") for at, e in inputs if f"{e.name}.new" in results]
        written = {name for _, name in self._written}
        users = iter([name for name in results if name not in written])
        self._results = [
            (kind, value if kind is Result.CONSTANT else next(users))
            for kind, value in graph.results
        ]

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the outputs for the arguments of a call by dynamo. Raises InputMismatchError for
        sizes that the code was not compiled for."""
        kept = self._kept
        arrays = dict(self._arrays)
        for number, (at, name) in enumerate(self._weights):
            tensor, before = arguments[at], kept[number]
            if before is None or before[0] is not tensor or before[1] != tensor.data_ptr():
                array = tensor.detach().numpy()
                kept[number] = tensor, tensor.data_ptr(), array
                arrays[name] = self._arrays[name] = array
        for at, name in self._others:
            arrays[name] = arguments[at].detach().numpy()
        results = self._session.run(arrays)
        for at, name in self._written:
            arguments[at].copy_(torch.from_numpy(results[name]))
        return tuple(
            torch.from_numpy(results[value])
            if kind is Result.TENSOR
            else int(results[value])
            if kind is Result.NUMBER
            else value
            for kind, value in self._results
        )
