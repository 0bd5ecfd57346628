"""Obtain the code of a graph of dynamo: from the cache on disk, or by export and compilation."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import torch

from farrier import pipeline
from farrier.cache.cache import Cache, Request
from farrier.cache.settings import CacheSettings
from farrier.errors import CompilerError, error_from_problem
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.progress import Event, Warned
from farrier.pytorch import process
from farrier.pytorch.export import exported
from farrier.pytorch.graph import TensorGraph, description
from farrier.runtime.artifact import Artifact, load_mapped
from farrier_device import wire
from farrier_device.child_process import ChildProcess
from farrier_device.python import command_of

# An exported model and options → its artifact.
Compile: TypeAlias = Callable[[Model, CompileOptions], Artifact]

_LOG = logging.getLogger("farrier.pytorch")


class Compilation:
    """The compilation of a graph, for the tensors of its first call. The artifact is cached on disk
    under a description of the graph, so that other processes find it without an export."""

    def __init__(
        self, graph: TensorGraph, tensors: Sequence[torch.Tensor], options: CompileOptions
    ) -> None:
        self._graph, self._tensors, self._options = graph, tensors, options
        self._text = description(graph)
        self._cache = Cache(CacheSettings.from_environment(), _LOG.warning)
        self._model: Model | None = None

    def export(self) -> None:
        """Export the graph now; otherwise `artifact` exports it when needed. The export must run in
        the thread that runs torch. Raises UnsupportedOperatorError."""
        sizes = [dict.fromkeys(x.open_axes, torch.export.Dim.AUTO) for x in self._graph.inputs]
        self._model = self._model or exported(self._graph.module, self._tensors, None, tuple(sizes))

    def kept(self) -> Artifact | None:
        """Return the artifact if it is in the cache on disk, else None."""
        try:
            return self.artifact(_refused)
        except _NotKeptError:
            return None

    def artifact(self, compile: Compile) -> Artifact:
        """Return the artifact, from the cache on disk or compiled by `compile`. Raises
        FarrierError."""
        if self._text is None:
            return self._compiled(compile)
        artifact = self._cached(self._text, compile)
        if self._fits(artifact):
            return artifact
        # The export has fixed a size that dynamo leaves open.
        sizes = [tuple(tensor.shape) for tensor in self._tensors]
        return self._cached(self._text + f"\n{sizes}".encode(), compile)

    def _cached(self, text: bytes, compile: Compile) -> Artifact:
        return self._cache.artifact(
            Request(text, self._options, {}), lambda _model, _warn: self._compiled(compile)
        )

    def _compiled(self, compile: Compile) -> Artifact:
        if compile is _refused:
            raise _NotKeptError
        self.export()
        assert self._model is not None
        return compile(self._model, self._options)

    def _fits(self, artifact: Artifact) -> bool:
        shapes = {
            each.name: tensor.shape
            for each, tensor in zip(self._graph.inputs, self._tensors, strict=True)
        }
        return all(
            not isinstance(extent, int) or extent == size
            for spec in artifact.manifest.inputs
            for extent, size in zip(spec.shape, shapes.get(spec.name, ()), strict=False)
        )


class _NotKeptError(Exception):
    """Error: the artifact is not in the cache on disk."""


def _refused(model: Model, options: CompileOptions) -> Artifact:
    raise _NotKeptError


def compile_here(model: Model, options: CompileOptions) -> Artifact:
    """Compile a model in this process."""
    return pipeline.compile_model(model, options, listener=_log)


def compile_beside(model: Model, options: CompileOptions) -> Artifact:
    """Compile a model in another process, so that this process can serve calls meanwhile. The other
    process ends with the thread that waits for it."""
    with tempfile.TemporaryDirectory(prefix="farrier-torch-") as folder:
        path = Path(folder, "graph.farrier")
        order = {
            "model": model.tells(Path(folder, "graph.pt2")),
            "options": options.to_dict(),
            "artifact": str(path),
        }
        with ChildProcess(lambda line: command_of(process.serve, line)) as child:
            wire.send(child.sock, order)
            try:
                answer = wire.receive(child.sock)
            except wire.ClosedError:
                raise CompilerError(f"the process that compiles {child.ending()}") from None
        if "failed" in answer:
            raise error_from_problem(answer["failed"])
        artifact = load_mapped(path)
        if artifact.mapped is not None:  # The kernel keeps the file's content while it is mapped.
            artifact.params = artifact.mapped.view
        return artifact


def _log(event: Event) -> None:
    """Log a compiler's warning, except the one on sizes of 1, which does not apply: dynamo compiles
    such sizes separately."""
    if isinstance(event, Warned):
        _LOG.info("%s", event.message)
