"""`InferenceSession`: a model compiled by Farrier, under ONNX Runtime's methods."""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.api import frames_of_farrier
from farrier.errors import CancelledError, FarrierError, UsageError
from farrier.onnxruntime.compiling import artifact_of, is_compiled
from farrier.onnxruntime.errors import as_onnxruntime_loads, as_onnxruntime_runs, refused
from farrier.onnxruntime.feed import Taken, check_names, wanted
from farrier.onnxruntime.metadata import (
    ModelMetadata,
    NodeArg,
    declaration_of,
    metadata,
    node_arg,
)
from farrier.onnxruntime.options import SessionOptions, fixed_sizes, not_applied
from farrier.onnxruntime.providers import choose
from farrier.onnxruntime.values import Array, OrtValue
from farrier.runtime.session import Session

if TYPE_CHECKING:
    from farrier.onnxruntime.binding import IOBinding

_ERROR_LEVEL = 3  # A level of ONNX Runtime's log.
# Keywords that programs pass to ONNX Runtime, and that change nothing here.
_KEYWORDS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")


class InferenceSession:
    """A compiled model. Calls from several threads are safe, and run one after another: each uses
    all of the session's threads. Several sessions run at the same time."""

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Load a model from its path or its bytes: from the cache if it was compiled before, for
        this machine and with these options; else compile it. A `.farrier` file is loaded.

        `sess_options` are `farrier.SessionOptions`, or ONNX Runtime's. Options of the compiler
        belong to the provider: `("FarrierExecutionProvider", {"precision": "bf16"})`. A warning
        names options that do not apply. Raises the same errors as ONNX Runtime (`errors.py`).
        """
        self._options = _checked(sess_options)
        self._is_quiet = getattr(self._options, "log_severity_level", -1) >= _ERROR_LEVEL
        ignored = not_applied(sess_options)
        ignored += [f"the keyword {name}" for name in kwargs if name not in _KEYWORDS]
        if ignored:
            self._warn(f"these options do not apply to Farrier: {'; '.join(ignored)}")
        model = _model(path_or_bytes)
        self._chosen = choose(providers, provider_options, _threads(self._options), self._warn)
        self._sizes = fixed_sizes(sess_options)
        self._load(model)
        # Sessions with overridden initializers are compiled at their first call.
        self._model = model if self._declaration.defaults else None
        self._variants: dict[frozenset[str], InferenceSession] = {}
        self._lock = threading.Lock()

    def _load(self, model: Path | bytes) -> None:
        with as_onnxruntime_loads(model):
            artifact = artifact_of(model, self._chosen, self._sizes, self._warn)
            self._session: Session = artifact.session(self._chosen.options.threads)
        manifest = artifact.manifest
        self._declaration = declaration_of(manifest)
        dims = {value.name: value.dims for value in self._declaration.inputs}
        self._inputs = {spec.name: Taken(spec, dims.get(spec.name, ())) for spec in manifest.asked}
        self._outputs = {value.name: value for value in self._declaration.outputs}

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Run the model and return the outputs of these names, or all for None: new arrays (strings
        have the dtype object), lists of arrays for sequences, None for an absent optional value.

        `input_feed` has arrays, lists or OrtValues by name. Raises ValueError for a missing input,
        InvalidArgument for an input of another name, dtype or shape and for an unknown output. The
        first call that has a value for an initializer compiles the model with that as an input.
        """
        if input_feed.keys() != self._inputs.keys():
            variant = self._overriding(input_feed)
            if variant is not self:
                return variant.run(output_names, input_feed, run_options)
            check_names(input_feed, self._declaration)
        names = wanted(output_names, self._declaration) if output_names else [*self._outputs]
        return self._computed(names, input_feed, {}, run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """Run as `run`, from OrtValues to OrtValues."""
        values = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(value) for value in values]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run as `run`, in a new thread, which calls `callback(outputs, user_data, error)`: `error`
        is "" after success; after any error, it is the message and `outputs` is empty."""
        check_names(input_feed, self._overriding(input_feed)._declaration)

        def work() -> None:
            try:
                outputs, problem = self.run(output_names, input_feed, run_options), ""
            except FarrierError as error:
                outputs, problem = [], str(error)
            except BaseException as error:  # The thread has no caller that could catch it.
                outputs, problem = [], f"{type(error).__name__}: {error}"
            callback(outputs, user_data, problem)

        threading.Thread(target=work, name="farrier-run-async").start()

    def io_binding(self) -> IOBinding:
        """Return an empty binding of inputs and outputs to the caller's memory: see `IOBinding`."""
        from farrier.onnxruntime.binding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run the model on the bound values. Raises RuntimeError if they do not fit the model,
        ValueError for another session's binding."""
        if iobinding._session is not self:
            raise refused(UsageError, "ValueError", "an IOBinding is for the session that made it")
        iobinding._run(run_options)

    def state(self) -> dict[str, Array]:
        """Return a copy of each state that the option `states` declares, by the name of its
        input."""
        return self._session.state()

    def load_state(self, arrays: Mapping[str, Any]) -> None:
        """Set states to arrays, by name of input, as `Session.load_state` does."""
        with as_onnxruntime_runs():
            self._session.load_state(arrays)

    def reset(self) -> None:
        """Reset all states to their initial values."""
        self._session.reset()

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that a caller must pass, as the model declares them."""
        return [node_arg(value) for value in self._declaration.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the name, type and shape of each output."""
        return [node_arg(value) for value in self._declaration.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return an empty list: initializers are constants of the compiled model."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model: producer, graph name, custom entries."""
        return metadata(self._declaration)

    def get_providers(self) -> list[str]:
        """Return the requested providers that exist here; all are Farrier."""
        return list(self._chosen.names)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider, as text."""
        options = {key: str(value) for key, value in self._chosen.options.to_dict().items()}
        return {
            name: options if name != "CPUExecutionProvider" else {} for name in self._chosen.names
        }

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Check that these providers have the same options as the session. The compiled model does
        not change.

        Raises ValueError for other options.
        """
        chosen = choose(providers, provider_options, _threads(self._options), self._warn)
        if chosen.options != self._chosen.options:
            raise refused(
                UsageError,
                "ValueError",
                "the model is compiled with other options",
                "make a session with these providers",
            )
        self._chosen = chosen

    def get_session_options(self) -> Any:
        """Return the options that the session was created with."""
        return self._options

    def enable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Do nothing: there is one provider."""

    def end_profiling(self) -> str:
        """Return "" as the name of the profile: `enable_profiling` does not apply."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """Return 0: a session records no profile."""
        return 0

    def _overriding(self, feed: Mapping[str, Any]) -> InferenceSession:
        """Return the session that runs a call with this `feed`. If the feed has values for
        initializers, this is a session in which these initializers are inputs; otherwise this
        session itself. Raises NotImplemented if the model is an artifact, which cannot be
        recompiled."""
        names = frozenset(feed).intersection(self._declaration.defaults)
        if not names:
            return self
        model = self._model
        if model is None or is_compiled(model):
            check_names(feed, self._declaration)
            return self
        with self._lock:
            if names not in self._variants:
                own = {name: ("?",) * _rank(feed[name]) for name in sorted(names)}
                options = self._chosen.options
                shapes = {**options.shapes, **own}
                variant = copy.copy(self)
                variant._chosen = dataclasses.replace(
                    self._chosen, options=dataclasses.replace(options, shapes=shapes)
                )
                variant._load(model)
                self._variants[names] = variant
            return self._variants[names]

    def _computed(
        self,
        names: Sequence[str],
        feed: Mapping[str, Any],
        into: Mapping[str, Array],
        run_options: Any,
    ) -> list[Any]:
        """Run the model and return the requested outputs; outputs in `into` are written to these
        arrays."""
        if getattr(run_options, "terminate", False):
            raise refused(CancelledError, "Fail", "the call's RunOptions say terminate")
        arrays = {name: taken.array(feed[name]) for name, taken in self._inputs.items()}
        members = {member: into.get(n) for n in names for member in self._outputs[n].members}
        with as_onnxruntime_runs():
            results = self._session.run(arrays, members)
        return [self._value(name, results) for name in names]

    def _value(self, name: str, results: Mapping[str, Array]) -> Any:
        output = self._outputs[name]
        arrays = {member: _as_object(results[member]) for member in output.members}
        if output.keys:
            (rows,) = arrays.values()
            return [dict(zip(output.keys, row, strict=True)) for row in rows.tolist()]
        return output.gathered(arrays)

    def _warn(self, message: str) -> None:
        if not self._is_quiet:
            warnings.warn(message, UserWarning, stacklevel=frames_of_farrier())


def _rank(value: Any) -> int:
    return np.ndim(value.numpy() if isinstance(value, OrtValue) else value)


def _as_object(array: Array) -> Array:
    """Return an array of strings with dtype object, as ONNX Runtime returns it."""
    return array.astype(object) if array.dtype.kind == "U" else array


def _checked(options: Any) -> Any:
    """Return the options if they are a SessionOptions, Farrier's or ONNX Runtime's. Raises
    TypeError otherwise."""
    if options is None:
        return SessionOptions()
    if not hasattr(options, "intra_op_num_threads"):
        raise refused(UsageError, "TypeError", f"{type(options).__name__} is no SessionOptions")
    return options


def _threads(options: Any) -> int:
    threads = int(getattr(options, "intra_op_num_threads", 0))
    return max(threads, 0)  # A number below 0 is ONNX Runtime's default, too.


def _model(path_or_bytes: Any) -> Path | bytes:
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes
    if isinstance(path_or_bytes, str | os.PathLike):
        if "\0" in str(path_or_bytes):
            raise refused(UsageError, "NoSuchFile", f"no file has the name {path_or_bytes!r}")
        return Path(path_or_bytes)
    raise refused(
        UsageError,
        "TypeError",
        f"a model is a path or bytes, not a {type(path_or_bytes).__name__}",
        "model.SerializeToString() of a ModelProto",
    )
