"""Compile a model to an artifact that can be used while a background process tunes it."""

from __future__ import annotations

import dataclasses

from farrier import pipeline
from farrier.background.process import TuningProcess
from farrier.background.tuning import Tuning
from farrier.errors import UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.progress import Listener
from farrier.runtime.artifact import Artifact


def begin(model: Model, options: CompileOptions, listener: Listener) -> Artifact:
    """Return the untuned artifact, and start its tuning in the background. Raises FarrierError."""
    if not options.tunes:
        raise UsageError(
            "there is nothing to do in the background: neither trials nor a budget is given",
            hint="compile(…, budget_s=300, background=True)",
        )
    options = pipeline.resolve_options(options)
    untuned = dataclasses.replace(options, trials=None, budget_s=None)
    artifact = pipeline.compile_model(model, untuned, listener=listener)
    artifact.tuning = Tuning(artifact, TuningProcess(model, options), listener)
    return artifact
