"""A session: a loaded model with its states, which can be called repeatedly."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from farrier.artifact import container
from farrier.artifact.code import ModelCode
from farrier.artifact.manifest import Manifest
from farrier.errors import ArtifactError, InputMismatchError
from farrier.ir.strings import codes_of, fitted, strings_of
from farrier.runtime.loaded_model import LoadedModel
from farrier.runtime.state import State
from farrier.targets.running import Loaded
from farrier_device.memory import Buffer

if TYPE_CHECKING:
    from farrier.runtime.device_array import DeviceArray

Array = npt.NDArray[Any]


class Session:
    """A model loaded into this process. Calls from several threads run one after the other; between
    two calls the code may be replaced by other code for the model (`exchange`)."""

    def __init__(
        self,
        manifest: Manifest,
        code: ModelCode,
        params: Buffer | container.Mapped,
        threads: int,
        memory_bytes: int = 0,
    ) -> None:
        """Load `code`; `params` holds the packed parameters and is kept alive.

        `memory_bytes` limits the outputs and workspace; 0: the memory of the machine. `threads` 0:
        the number for which the code was tuned, but at most the number of cores.

        Raises ArtifactError if the model was compiled for another kind of machine, UsageError for
        more threads than its memory plan has room for.
        """
        # A signal's handler may close the session during a call of its thread.
        self._lock = threading.RLock()
        self._loaded = LoadedModel(manifest, code, params, threads, memory_bytes)
        self.threads = self._loaded.threads
        self.memory_bytes = self._loaded.memory_bytes
        self.states = tuple(State(manifest, spec) for spec in manifest.state)
        held = frozenset(state.spec.input for state in self.states)
        self._names = frozenset(spec.name for spec in manifest.inputs) - held
        self._string_inputs = [spec for spec in manifest.inputs if spec.is_strings]
        self._string_outputs = [spec.name for spec in manifest.outputs if spec.is_strings]
        declaration = manifest.declaration
        has_lists = declaration is not None and any(v.is_sequence for v in declaration.outputs)
        self._may_be_small = not has_lists and not manifest.state

    @property
    def manifest(self) -> Manifest:
        """The manifest of the code in use."""
        return self._loaded.manifest

    @property
    def params(self) -> Buffer | container.Mapped:
        """The packed parameters that the code in use reads."""
        return self._loaded.params

    @property
    def code(self) -> Loaded:
        return self._loaded.code

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        outputs: Mapping[str, Array | None] | None = None,
    ) -> dict[str, Any]:
        """Run the model and return its outputs by name: new arrays, and lists of arrays for
        sequences.

        `outputs` restricts the result to the tensors that it names; the tensors of sequences have
        names of their own then. Each is written to its array, which must have the output's shape
        and dtype, or to a new array for None. An array that overlaps an input is written after all
        inputs have been read; any other contiguous array is written by the model directly.

        The states of the model are neither inputs nor, unless `outputs` names them, outputs: the
        session keeps them (`state`, `load_state`, `reset`), and they do not change if a call fails.

        Raises InputMismatchError if a name, dtype or shape differs from the manifest's.
        """
        may_be_small = self._may_be_small and outputs is None
        if may_be_small and not self._string_inputs and type(inputs) is dict:
            with self._lock:
                results = self._loaded.run_small(inputs)
            if results is not None:
                return self._with_strings(results)
        if not isinstance(inputs, Mapping):
            raise InputMismatchError(
                f"inputs are arrays by name, not a {type(inputs).__name__}",
                hint=f"{self.manifest.name} takes {', '.join(sorted(self._names))}",
            )
        if inputs.keys() != self._names:
            raise self._names_mismatch(inputs)
        if self._string_inputs:
            inputs = {**inputs, **self._codes(inputs)}
        with self._lock:
            again = may_be_small and bool(self._string_inputs)
            results = self._loaded.run_small(inputs) if again else None
            if results is None:
                results = self._loaded.run(inputs, outputs, self.states)
        results = self._with_strings(results)
        return results if outputs is not None else self._gathered(results)

    def to_device(self, array: npt.ArrayLike) -> DeviceArray:
        """Return a copy of an array in the memory of the device that runs the model. Raises
        UsageError if the model runs on the CPU."""
        from farrier.runtime import device_array, on_device  # Most sessions have no device.

        with self._lock:
            _, device = on_device.entry_of(self._loaded)
            return device_array.DeviceArray.of(device, array)

    def run_on_device(self, inputs: Mapping[str, Any]) -> dict[str, DeviceArray]:
        """Run the model and return its outputs by name, in the memory of the device that runs it.

        An input is a host array, a DeviceArray, or a CUDA array of another library, such as a torch
        tensor, which is used in place (DLPack); `torch.from_dlpack` accepts an output in turn.
        Nothing is copied to the host, unless a step on the host reads it. Raises UsageError if the
        model runs on the CPU, has states, or has outputs whose sizes the data decides.
        """
        from farrier.runtime import on_device

        if inputs.keys() != self._names:
            raise self._names_mismatch(inputs)
        with self._lock:
            return on_device.run(self._loaded, inputs)

    def _with_strings(self, results: dict[str, Array]) -> dict[str, Array]:
        """Return the results with arrays of code points converted to strings."""
        for name in self._string_outputs:
            if name in results:
                results[name] = strings_of(results[name])
        return results

    def state(self) -> dict[str, Array]:
        """Return a copy of each state, by the name of its input."""
        with self._lock:
            return {state.spec.input: state.copy() for state in self.states}

    def load_state(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Set the states named in `arrays`, by the names of their inputs; other states stay
        unchanged. Raises InputMismatchError for a name that is not a state and for an array of
        another dtype or shape, MemoryLimitError for an array beyond a capacity."""
        states = {state.spec.input: state for state in self.states}
        unknown = sorted(set(arrays) - set(states))
        if unknown:
            raise InputMismatchError(
                f"{self.manifest.name} has no state {', '.join(unknown)}",
                hint=f"its states: {', '.join(states) or 'none'}",
            )
        with self._lock:
            checked = {name: states[name].check(value) for name, value in arrays.items()}
            for name, array in checked.items():
                states[name].load(array)

    def reset(self) -> None:
        """Set every state to its value before the first call."""
        with self._lock:
            for state in self.states:
                state.reset()

    def _gathered(self, results: dict[str, Array]) -> dict[str, Any]:
        """Return the results, in which the tensors of each sequence are collected into a list."""
        declaration = self.manifest.declaration
        if declaration is None or not any(value.is_sequence for value in declaration.outputs):
            return results
        held = {m: v for v in declaration.outputs if v.is_sequence for m in v.members}
        outputs: dict[str, Any] = {n: array for n, array in results.items() if n not in held}
        for value in declaration.outputs:
            if value.is_sequence:
                outputs[value.name] = value.gathered(results)
        order = {value.name: place for place, value in enumerate(declaration.outputs)}
        return dict(sorted(outputs.items(), key=lambda item: order.get(item[0], len(order))))

    def _codes(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Return the code points of the inputs that are strings, by name. Raises
        InputMismatchError."""
        coded = {}
        for spec in self._string_inputs:
            width = spec.shape[-1]
            try:
                codes = codes_of(inputs[spec.name])
                coded[spec.name] = fitted(codes, width) if isinstance(width, int) else codes
            except ValueError as error:
                raise InputMismatchError(
                    f"input {spec.name} takes strings: {error}",
                    hint="give an array of str, or of bytes in UTF-8",
                ) from error
        return coded

    @property
    def addresses(self) -> tuple[int, ...]:
        """Return the addresses of the entry's arguments (`LoadedModel.addresses`), which are valid
        as long as the arrays of the last `run` exist."""
        return self._loaded.addresses

    @property
    def closed(self) -> bool:
        return self._loaded.closed

    def beside(
        self, manifest: Manifest, code: ModelCode, params: Buffer | container.Mapped
    ) -> LoadedModel:
        """Load other code for this model, for a later `exchange`, while the current code stays in
        use.

        The result has the same number of threads, and memory for the same sizes. Raises
        ArtifactError if the code is not for this model or machine, UsageError as `Session` does.
        """
        now = self._loaded
        if not manifest.has_interface_of(now.manifest):
            raise ArtifactError(
                f"{manifest.name} has other inputs, outputs or sizes than {now.manifest.name}",
                hint="make a session of its own for it",
            )
        loaded = LoadedModel(manifest, code, params, self.threads, self.memory_bytes)
        loaded.adopt(now)
        return loaded

    def exchange(self, loaded: LoadedModel) -> None:
        """Replace the code by that of `loaded`, which the next call runs, and unload the previous
        code.

        A parallel call waits only for the replacement, not for the unloading. A closed session
        stays closed, and `loaded` is closed as well.
        """
        with self._lock:
            before = self._loaded
            if before.closed:
                before = loaded
            else:
                loaded.adopt(before)  # Calls since `loaded` was made may have set other sizes.
                self._loaded = loaded
        before.close()

    def close(self) -> None:
        """Stop the threads and unload the code; a second call does nothing."""
        with self._lock:
            self._loaded.close()

    def _names_mismatch(self, inputs: Mapping[str, Any]) -> InputMismatchError:
        expected = ", ".join(sorted(self._names)) or "none"
        passed = ", ".join(sorted(map(str, inputs))) or "none"
        declared = self.manifest.declaration
        constant = sorted(set(inputs).intersection(() if declared is None else declared.defaults))
        held = [state.spec.input for state in self.states if state.spec.input in inputs]
        hint = ""
        if held:
            hint = f"{held[0]} is a state, which the session keeps: session.load_state sets it"
        if constant:
            hint = (
                f"{constant[0]} has a value in the model's file, which is compiled in; with a "
                f"shape for it (--shape {constant[0]}=…) it is an input"
            )
        return InputMismatchError(
            f"{self.manifest.name} takes the inputs {expected}; given: {passed}", hint=hint
        )
