"""`farrier.compile`: the complete compiler as one function."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier.errors import (
    InvalidModelError,
    SizeWarning,
    UsageError,
    VerificationWarning,
    not_installed,
)
from farrier.options import MAX_LAYER_ERROR, TYPICAL_ALONE, CompileOptions
from farrier.options.shapes import GivenShape, Hot
from farrier.runtime.artifact import Artifact

if TYPE_CHECKING:
    from types import FrameType

    import onnx

    from farrier.frontends.builder import Source
    from farrier.frontends.onnx.model.file import Model
    from farrier.progress import Event, Listener


def compile(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | Model | Source,
    target: str = "host",
    shapes: Mapping[str, GivenShape] | None = None,
    hot: Sequence[Hot] = TYPICAL_ALONE,
    typical: Hot | None = None,
    trials: int | None = None,
    budget_s: float | None = None,
    threads: int = 0,
    seed: int = 0,
    max_layer_error: float = MAX_LAYER_ERROR,
    verify: bool = True,
    precision: str = "f32",
    cores: int = 0,
    states: Mapping[str, str] | None = None,
    listener: Listener | None = None,
    folder: str | os.PathLike[str] | None = None,
    background: bool = False,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Artifact:
    """Compile a model for this machine: an ONNX, TFLite, PyTorch or StableHLO model (a path or its
    bytes; the content decides the format), a ModelProto, or the description of another frontend
    (`farrier.frontends.builder.Source`).

    Weights in separate files are read from the folder of the model's path; for bytes and a
    ModelProto, from `folder`.

    `shapes` maps an input's name to its dimensions, numbers or open dims: `("batch:1..8", 3, "h",
    "w")`; a dimension that neither the model nor the caller fixes stays open. `typical` maps open
    dims to their usual sizes: `{"batch": 1, "h": 640}`. Each element of `hot` maps open dims to
    sizes for which kernels are specialized: by default, the typical ones.

    With `trials` or `budget_s` the kernels are tuned by measuring here; without both, the analytic
    ranking decides. `max_layer_error` limits the rounding error of the algorithm for a layer, as a
    fraction of the layer's range. With `precision` "bf16" or "f16" (aarch64) contractions multiply
    in that type and sum in f32; the report states the error. `cores` limits the number of this
    machine's cores that compile (0: all); the code is the same.

    `states` maps inputs that each session keeps between its calls to the outputs that replace them:
    `{"past_key_values.*": "present.*:capacity=4096"}`; see docs/guide/states.md.

    A PyTorch module is exported here first, with its example arguments `args` and `kwargs`, and
    with `dynamic_shapes` as `torch.export.export` takes them; see docs/pytorch.md. So is a function
    of `jax.jit`; see docs/jax.md.

    With `background` the untuned artifact is returned at once, and another process tunes it from
    then on: the artifact switches to each better version, and its sessions run the new code from
    their next call on. `Artifact.tuning` lists the versions, stops the tuning and reverts to
    earlier versions; see docs/guide/background.md. `listener` receives its events in another
    thread. A model that cannot be verified, or that differs from ONNX Runtime's result by more than
    rounding, causes a warning: to `listener`, or as a `VerificationWarning`; so do open dims that
    are restricted to one size, as a `SizeWarning`. Raises FarrierError.
    """
    example = (args, kwargs, dynamic_shapes)
    source = _source(model, None if folder is None else Path(folder), example)
    options = CompileOptions(
        target=target,
        shapes=dict(shapes or {}),
        hot=tuple(hot),
        typical=dict(typical or {}),
        trials=trials,
        budget_s=budget_s,
        threads=threads,
        seed=seed,
        max_layer_error=max_layer_error,
        verify=verify,
        precision=precision,
        cores=cores,
        states=dict(states or {}),
    )
    compile_model = _begin_in_background if background else _compile_now
    return compile_model(source, options, listener or _warn)


def _source(model: Any, folder: Path | None, example: tuple[Any, Any, Any]) -> Model | Source:
    """Return the model to compile. A PyTorch module or a JAX function is exported with the
    arguments and dynamic shapes in `example`. If the frontend needs a package that is not
    installed, the error names it."""
    try:
        importlib.import_module("farrier.pipeline")
        from farrier.conversion import jax
        from farrier.frontends.builder import Source
        from farrier.frontends.registry import frontend_of
        from farrier.pytorch.export import exported, is_module

        if is_module(model):
            model = exported(model, *example)
        elif jax.is_jax(model):
            model = jax.exported(model, *example)
        source = _given(model, folder)
        if not isinstance(source, Source):
            frontend_of(source)
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    return source


def _compile_now(model: Model | Source, options: CompileOptions, listener: Listener) -> Artifact:
    from farrier import pipeline

    return pipeline.compile_model(model, options, listener=listener)


def _begin_in_background(
    model: Model | Source, options: CompileOptions, listener: Listener
) -> Artifact:
    from farrier.background import begin
    from farrier.frontends.builder import Source

    if isinstance(model, Source):
        raise UsageError(
            "background tuning needs an ONNX model: another process imports it again",
            hint="compile it with trials or budget_s, which tune before the call returns",
        )
    return begin(model, options, listener)


def _warn(event: Event) -> None:
    """Issue Python warnings for events that make a result doubtful; the listener for callers
    without one."""
    from farrier.progress import SIZES, VERIFICATION, Warned

    kinds = {VERIFICATION: VerificationWarning, SIZES: SizeWarning}
    if isinstance(event, Warned) and event.topic in kinds:
        warnings.warn(event.message, kinds[event.topic], stacklevel=frames_of_farrier())


def _given(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto | Model | Source, folder: Path | None
) -> Model | Source:
    """Return the model that the caller passed. Raises UsageError, InvalidModelError."""
    from farrier.frontends.builder import Source
    from farrier.frontends.onnx.model.file import Model

    if isinstance(model, Model | Source):
        return model
    if isinstance(model, str | os.PathLike):
        return Model.of_path(model)
    if isinstance(model, bytes):
        return Model.of_bytes(model, folder=folder)
    try:
        message = model.SerializeToString()
    except Exception as error:  # Implementations of protobuf differ in the classes of their errors.
        raise InvalidModelError(
            f"the ModelProto cannot be written as one message: {error}",
            hint="a message ends at 2 GiB: onnx.save(model, 'm.onnx', save_as_external_data=True), "
            "and pass that path",
        ) from error
    return Model.of_bytes(message, model.graph.name or "model", folder)


def frames_of_farrier() -> int:
    """Return the `stacklevel` with which a warning refers to the line of the caller outside
    Farrier."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame) in ("farrier", "contextlib"):
        frame, level = frame.f_back, level + 1
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
