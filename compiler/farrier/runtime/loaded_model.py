"""The code of a model loaded into this process, with its parameters, threads and memory."""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact import container
from farrier.artifact.code import ModelCode
from farrier.artifact.manifest import Manifest, TensorSpec, damaged
from farrier.errors import (
    ArtifactError,
    CompilerError,
    InputMismatchError,
    MemoryLimitError,
    UsageError,
)
from farrier.ir.dim import Extent, evaluate, symbols, upper
from farrier.runtime.small_call import SmallCall
from farrier.runtime.state import State
from farrier.targets import why_not_here
from farrier.targets.registry import backend_for
from farrier_device.describe import cores
from farrier_device.memory import ALIGNMENT, Buffer, aligned_buffer, pointers

Array = npt.NDArray[Any]
_WORTH_ALIGNING = 16 << 10  # Below, in bytes, aligning takes longer than the stores it saves.


def check_runs_here(manifest: Manifest, threads: int = 0) -> int:
    """Return the number of threads that run the model: `threads`, or for 0 the number for which it
    was tuned, but at most the number of this machine's cores. Raises ArtifactError if the model was
    compiled for another kind of machine, UsageError for more threads than its memory plan has room
    for."""
    if why := why_not_here(manifest.architecture, manifest.machine, manifest.features):
        raise ArtifactError(
            f"{manifest.name} was compiled for {manifest.machine} ({manifest.architecture}); {why}",
            hint="compile it here (--target host), or for a machine like this one: "
            "`farrier targets` lists those that have names",
        )
    tuned, most = backend_for(manifest.architecture).threads(manifest.backend)
    threads = threads or min(tuned, cores())
    if not 1 <= threads <= most:
        raise UsageError(
            f"{manifest.name} runs with 1 to {most} threads, not {threads}",
            hint=f"compile it with --threads {threads}" if threads > 0 else "",
        )
    return threads


class LoadedModel:
    """A loaded model, which runs one call at a time.

    A size that the values of inputs decide and that has no bound has a capacity
    (`Manifest.capacities`): memory is allocated for the capacity; if a call needs more, the
    capacity is increased and the call is repeated, which is safe because a model is a function of
    its inputs.
    """

    def __init__(
        self,
        manifest: Manifest,
        code: ModelCode,
        params: Buffer | container.Mapped,
        threads: int,
        memory_bytes: int = 0,
    ) -> None:
        """Load a model; the arguments are those of `Session`."""
        self.threads = check_runs_here(manifest, threads)
        self.manifest = manifest
        backend = backend_for(manifest.architecture)
        code.check_kinds(backend.code_kinds, f"the backend for {manifest.architecture}")
        self.code = backend.load(code, self.threads)
        self._entry, self._context = self.code.entry, self.code.context
        # Not `__del__`: at interpreter exit the helpers must stop before their memory goes.
        self._finalizer = weakref.finalize(self, self.code.close)
        passed = frozenset(extent.symbol for extent in manifest.given)
        held = {name for state in manifest.state for name in (state.input, state.output)}
        self._inputs, self._outputs = (
            [_Slot(spec, manifest.extents(spec), passed, spec.name in held) for spec in side]
            for side in (manifest.inputs, manifest.outputs)
        )
        self._at = {slot.name: at for at, slot in enumerate((*self._inputs, *self._outputs))}
        self.params = params
        self._workspace = aligned_buffer(0)
        self._sizes = (ctypes.c_int64 * len(manifest.sizes))(*manifest.sizes)
        self._given: dict[str, int] = {}  # The sizes that memory is laid out for.
        self._is_laid_out = False
        self._small_call: SmallCall | None = None
        self._capacities = {capacity.symbol: capacity.first for capacity in manifest.capacities}
        self.memory_bytes = memory_bytes or _machine_bytes()
        self._limits = manifest.limits()
        try:
            self._workspace_extent = manifest.extent(self.code.most_workspace)
        except ValueError as error:
            raise damaged(error) from error
        self._limits_of_dims = [
            (precondition, manifest.not_negative(precondition))
            for precondition in manifest.preconditions
            if precondition.extent
        ]
        self._axes = {spec.name: spec.axes for spec in manifest.inputs}
        self._found_at = len(manifest.given) + len(manifest.counted)
        self._args = pointers(
            [
                *(slot.buffer.address for slot in (*self._inputs, *self._outputs)),
                self.params.address,
                self._workspace.address,
                ctypes.addressof(self._sizes),
            ]
        )
        self._resize({dim.symbol: dim.typical for dim in manifest.dims}, is_called=False)

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        outputs: Mapping[str, Array | None] | None,
        states: Sequence[State] = (),
    ) -> dict[str, Array]:
        """Run the model and return its outputs by name, with the semantics of `Session.run`.
        `inputs` are named as the model's inputs, without its `states`; strings are passed as code
        points. If the call fails, the states do not change."""
        arrays = []  # These arrays must stay alive until the call ends.
        shapes = self._shapes_of(inputs, states) if states else None
        if self.manifest.dims and not self._is_laid_out_for(inputs, shapes):
            self._resize(self._sizes_with(inputs, shapes) if shapes else self._sizes_of(inputs))
        for position, slot in enumerate(self._inputs):
            if not slot.is_held or slot.name in inputs:
                array, self._args[position] = self._placed(slot, inputs[slot.name])
                arrays.append(array)
        for state in states:
            assert shapes is not None
            ends = state.places(shapes[state.spec.input], self._given, self.memory_bytes)
            for name, address in zip((state.spec.input, state.spec.output), ends, strict=True):
                self._args[self._at[name]] = address
        targets = self._targets(outputs, arrays)
        self.call()
        for state in states:
            state.advance()
        return self._results(outputs, targets, {state.spec.output: state for state in states})

    def place(
        self, inputs: Mapping[str, npt.ArrayLike]
    ) -> tuple[Sequence[_Slot], Sequence[_Slot], Sequence[Array]]:
        """Prepare a `call` whose outputs are written to the model's own memory (slots). Return the
        slots of inputs and outputs, and arrays that must stay alive until the call ends."""
        if self.manifest.dims and not self._is_laid_out_for(inputs, None):
            self._resize(self._sizes_of(inputs))
        arrays = []
        for position, slot in enumerate(self._inputs):
            array, self._args[position] = self._placed(slot, inputs[slot.name])
            arrays.append(array)
        for slot in self._outputs:
            self._args[self._at[slot.name]] = slot.buffer.address
        return self._inputs, self._outputs, arrays

    def run_small(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array] | None:
        """Return all outputs of a call, if it is as small as the call before and has the same
        shapes; None if it needs `run`."""
        if self._small_call is None or self.closed:
            return None
        return self._small_call.run(self._entry, self._context, inputs)

    def _shapes_of(
        self, inputs: Mapping[str, npt.ArrayLike], states: Sequence[State]
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the states before this call. States that have not been used yet get
        the shapes that follow from the inputs and the other states."""
        sizes: dict[str, int] = {}
        if any(state.shape is None for state in states):
            dims = {dim.step * dim.extent: dim for dim in self.manifest.dims}
            begun = {state.spec.input: state.shape for state in states}
            for slot in self._inputs:
                shape = begun.get(slot.name)
                if slot.name in inputs:
                    shape = slot.read(inputs[slot.name]).shape
                for size, extent in zip(shape or (), slot.extents, strict=False):
                    if extent in dims:
                        sizes[dims[extent].symbol] = size // dims[extent].step
        return {state.spec.input: state.begin(sizes) for state in states}

    def _sizes_with(
        self, inputs: Mapping[str, npt.ArrayLike], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, int]:
        """Return the values of the dims that the shapes of inputs and of states imply; an error
        explains that the sizes of states come from earlier calls."""
        try:
            return self._sizes_of(inputs, shapes)
        except InputMismatchError as error:
            raise InputMismatchError(
                error.message,
                hint=f"{', '.join(shapes)} have the sizes of the calls before: session.reset() "
                "begins anew",
            ) from error

    def _targets(
        self, outputs: Mapping[str, Array | None] | None, arrays: Sequence[Array]
    ) -> dict[str, Array]:
        """Let the call write outputs directly to the caller's arrays where possible. Return the
        arrays to which it writes, by name: the caller's, or new ones.

        Outputs whose sizes the data decides are left out, and so are arrays to which the call
        cannot write directly: not contiguous, or overlapping an input or another output. Raises
        InputMismatchError for an array of another shape or dtype.
        """
        wanted = dict.fromkeys((slot.name for slot in self._outputs), None)
        arrays_of = wanted if outputs is None else outputs
        targets: dict[str, Array] = {}
        for slot in self._outputs:
            if slot.is_held:
                into = arrays_of.get(slot.name)
                if into is not None:
                    slot.check_fits(into)
                continue
            self._args[self._at[slot.name]] = slot.buffer.address
            if slot.name not in arrays_of or self.manifest.counted:
                continue
            into = arrays_of[slot.name]
            if into is None:
                into = slot.new()
            else:
                slot.check_fits(into)
                if not _is_dense(into) or any(
                    np.may_share_memory(into, other) for other in (*arrays, *targets.values())
                ):
                    continue
            targets[slot.name] = into
            self._args[self._at[slot.name]] = _address(into)
        return targets

    def _results(
        self,
        outputs: Mapping[str, Array | None] | None,
        targets: Mapping[str, Array],
        states: Mapping[str, State],
    ) -> dict[str, Array]:
        """Return the outputs: those in `targets` are complete, the others are copied from the
        memory to which the call wrote; states only if `outputs` names them."""
        sizes = self._symbols() if self.manifest.counted else None
        wanted: Mapping[str, Array | None] = {} if outputs is None else outputs
        arrays: dict[str, Array] = {}
        for slot in self._outputs:
            if slot.name not in outputs if outputs is not None else slot.is_held:
                continue
            if slot.name in targets:
                arrays[slot.name] = targets[slot.name]
            elif slot.name in states:
                arrays[slot.name] = states[slot.name].copy()
            else:
                arrays[slot.name] = slot.array if sizes is None else slot.part(sizes)
        for name, array in arrays.items():
            into = wanted.get(name)
            if into is not None:
                _check_fits(name, into, array.shape, array.dtype)
        return {
            name: array if name in targets else _copied(array, wanted.get(name))
            for name, array in arrays.items()
        }

    def call(self) -> None:
        """Run the model on the arguments that were prepared.

        Raises UsageError after `close`, InputMismatchError for a size that is impossible with the
        inputs' values and for a branch that is not compiled, MemoryLimitError for a size that takes
        too much memory.
        """
        if self.closed:
            raise UsageError(f"this session of {self.manifest.name} is closed")
        while (code := self._entry(self._args, self._context)) < 0:
            self._make_room(-1 - code)
        if code:
            raise CompilerError(f"{self.manifest.name}: the compiled model returned code {code}")

    def _make_room(self, number: int) -> None:
        """Increase the capacity that check `number` reported as too small, and reallocate memory.
        Raises InputMismatchError or MemoryLimitError if that is impossible."""
        check, limit = self.manifest.checks[number], self._limits[number]
        if check.reason:
            raise InputMismatchError(
                f"the inputs lead node {check.node!r} of {self.manifest.name} to a branch that is "
                f"not compiled: {check.reason}",
                hint="give inputs that lead to the other branch, or compile the model for sizes "
                "that fit this one",
            )
        size = self._sizes[self._found_at]
        if check.needs:
            raise InputMismatchError(
                f"node {check.node!r} of {self.manifest.name} gets {size} from the values "
                f"of the inputs; {check.needs}"
            )
        shown = () if limit is None else symbols((limit,))
        grown = [symbol.name for symbol in shown if symbol.name in self._capacities]
        values = self._given | self._capacities
        has_room = limit is not None and bool(grown) and 0 <= size <= evaluate(limit, values)
        if size < 0 or not grown or has_room:
            most = "0 or more" if grown else f"0 to {check.most}"
            most = "less beside the other sizes" if has_room else most
            raise InputMismatchError(
                f"node {check.node!r} of {self.manifest.name} gets the size {size} from the values "
                f"of the inputs, and it must be {check.most if check.is_exact else most}"
            )
        before = dict(self._capacities)
        # Twice the size at first, so that a size that grows step by step seldom asks for more.
        for generous in (True, False):
            for name in grown:
                self._capacities[name] = max(size, before[name] * (2 if generous else 1))
            if self._needed_bytes() <= self.memory_bytes:
                self._lay_out()
                return
        needed = self._needed_bytes()
        self._capacities = before
        raise MemoryLimitError(
            f"node {check.node!r} of {self.manifest.name} asks for an extent of {size}, for which "
            f"the model needs {needed} bytes; it may have {self.memory_bytes}",
            hint="check the input that says the size, or give the session more memory_bytes "
            "(--memory-bytes)",
        )

    def _is_laid_out_for(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        shapes: Mapping[str, tuple[int, ...]] | None,
    ) -> bool:
        """Check whether inputs, and states of these `shapes`, have the shapes of the previous call,
        which is faster than deriving the sizes."""
        return self._is_laid_out and all(
            (
                shapes[slot.name]
                if shapes and slot.name in shapes
                else getattr(inputs[slot.name], "shape", None)
            )
            == slot.shape
            for slot in self._inputs
        )

    def _sizes_of(
        self,
        inputs: Mapping[str, npt.ArrayLike],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> dict[str, int]:
        """Return the values of the dims, by symbol, that follow from the shapes of inputs and of
        states. Raises InputMismatchError for a size out of range, and if two inputs contradict each
        other."""
        dims = {dim.step * dim.extent: dim for dim in self.manifest.dims}
        sizes: dict[str, int] = {}
        sums: list[
            tuple[str, int, int, Extent]
        ] = []  # Sums of dims; each dim also occurs by itself in some shape.
        for spec, slot in zip(self.manifest.inputs, self._inputs, strict=True):
            if shapes and spec.name in shapes:
                shape = shapes[spec.name]
            else:
                shape = slot.read(inputs[spec.name]).shape
            if len(shape) != len(slot.extents):
                self._placed(slot, inputs[spec.name])
            for axis, (size, extent) in enumerate(zip(shape, slot.extents, strict=False)):
                if extent in dims:
                    dim = dims[extent]
                    number, rest = divmod(size, dim.step)
                    if rest or not dim.low <= number <= dim.high:
                        raise self._out_of_range(
                            f"input {spec.name} has {size} at axis {axis}, and {dim.name} is "
                            f"{dim.range}",
                            [dim.name],
                        )
                    if sizes.setdefault(dim.symbol, number) != number:
                        raise self._out_of_range(
                            f"input {spec.name} has {size} at axis {axis}, and elsewhere "
                            f"{dim.name} is {sizes[dim.symbol] * dim.step}",
                            [dim.name, *self._axes[spec.name][axis : axis + 1]],
                        )
                elif not isinstance(extent, int):
                    sums.append((spec.name, axis, size, extent))
        for name, axis, size, extent in sums:
            if size != evaluate(extent, sizes):
                raise self._out_of_range(
                    f"input {name} has {size} at axis {axis}, and the other inputs make it "
                    f"{evaluate(extent, sizes)}",
                    self._axes[name][axis : axis + 1],
                )
        for precondition, extent in self._limits_of_dims:
            if evaluate(extent, sizes) < 0:
                sizes_shown = (f"{d.name} {sizes[d.symbol] * d.step}" for d in dims.values())
                raise self._out_of_range(
                    f"{self.manifest.name} does not take {', '.join(sizes_shown)}",
                    precondition.dims,
                )
        return sizes

    def _out_of_range(self, message: str, names: Sequence[str]) -> InputMismatchError:
        """Return an error with `message`, extended by the preconditions on the dims `names`."""
        asked = [p for p in self.manifest.preconditions if set(names) & set(p.dims)]
        taken = [p for p in asked if any(f"{name} is " in p.needs for name in names)] or asked
        if not taken:
            return InputMismatchError(message, hint="compile it with another range in --shape")
        return InputMismatchError(
            f"{message}; {taken[-1]}",
            hint="compile it for such sizes: --typical or --shape gives them",
        )

    def _placed(self, slot: _Slot, value: npt.ArrayLike) -> tuple[Array, int]:
        """Return the array that the call reads for an input, and the address of its elements.
        Raises InputMismatchError if the shape is wrong; the error explains the conditions on the
        sizes."""
        try:
            return slot.placed(value)
        except InputMismatchError as error:
            shape = slot.read(value).shape
            sizes = zip(self._axes[slot.name], shape, slot.shape, strict=False)
            names = [name for name, size, taken in sizes if name and size != taken]
            if not names:
                raise
            raise self._out_of_range(error.message, names) from None

    def _symbols(self) -> dict[str, int]:
        """Return the value of every symbol in the run that has ended."""
        manifest = self.manifest
        names = [*(size.symbol for size in manifest.given), *(k.symbol for k in manifest.counted)]
        return dict(zip(names, self._sizes, strict=False))

    def _resize(self, sizes: Mapping[str, int], is_called: bool = True) -> None:
        """Allocate memory for these sizes, the values of the dims by symbol. Raises
        MemoryLimitError if the model needs more than its limit, unless `is_called` is false."""
        if self._is_laid_out and self._given == sizes:
            return
        before, self._given = self._given, dict(sizes)
        needed = self._needed_bytes()
        if is_called and needed > self.memory_bytes:
            self._given = before
            raise MemoryLimitError(
                f"{self.manifest.name} needs {needed} bytes for inputs of these sizes; it may have "
                f"{self.memory_bytes}",
                hint="give it smaller inputs, or the session more memory_bytes (--memory-bytes)",
            )
        # Both are set again only after the allocation succeeds.
        self._is_laid_out, self._small_call = False, None
        for position, slot in enumerate(self._inputs):
            self._args[position] = slot.resized(sizes)
        self._lay_out()
        self._is_laid_out, self._small_call = True, self._small_call_here()

    def _small_call_here(self) -> SmallCall | None:
        """Return the fast path for calls of the current shapes; None if these are not small, or if
        the model has states or outputs of sizes that the data decides."""
        slots = (*self._inputs, *self._outputs)
        if self.manifest.counted or self.manifest.capacities or self.manifest.state:
            return None
        if not SmallCall.suits(*(slot.array for slot in slots)):
            return None
        inputs, outputs = (
            [(slot.name, slot.array) for slot in side] for side in (self._inputs, self._outputs)
        )
        return SmallCall(inputs, outputs, pointers(list(self.addresses)))

    def adopt(self, other: LoadedModel) -> None:
        """Allocate memory for the sizes that `other` has, unless that is done already. Capacities
        do not shrink."""
        grown = {
            name: max(own, other._capacities.get(name, own))
            for name, own in self._capacities.items()
        }
        if (self._given, self._capacities) == (other._given, grown):
            return
        self._capacities = grown
        self._is_laid_out = False
        self._resize(other._given, is_called=False)

    def _write_sizes(self) -> dict[str, int]:
        """Write the values of the dims to the argument from which the entry reads them. Return them
        by symbol."""
        values = self._given | self._capacities
        names = [extent.symbol for extent in self.manifest.given]
        self._sizes[: len(names)] = [values[name] for name in names]
        return values

    def _needed_bytes(self) -> int:
        """Return the size in bytes of outputs and workspace for the current sizes, or an upper
        bound if that is within the limit. Compiled code computes addresses in 64 bits, so it is not
        called for more."""
        values = self._given | self._capacities
        outputs = sum(slot.room(values) for slot in self._outputs)
        most = evaluate(self._workspace_extent, values)
        if not self.memory_bytes - outputs < most < 1 << 63 or not values:
            return outputs + most
        sizes = [values[extent.symbol] for extent in self.manifest.given]
        return outputs + self.code.workspace_bytes(
            ctypes.addressof((ctypes.c_int64 * len(sizes))(*sizes))
        )

    def _lay_out(self) -> None:
        """Allocate outputs and workspace for the current sizes."""
        values = self._write_sizes()
        first = len(self._inputs)
        for position, slot in enumerate(self._outputs, first):
            self._args[position] = slot.resized(values)
        needed = self.code.workspace_bytes(ctypes.addressof(self._sizes))
        if needed > self._workspace.nbytes:
            # A state that grows by a little at each call asks for a little more each time.
            grows = any(state.axis is not None for state in self.manifest.state)
            self._workspace = aligned_buffer(max(needed, 2 * self._workspace.nbytes * grows))
            self._args[first + len(self._outputs) + 1] = self._workspace.address

    @property
    def addresses(self) -> tuple[int, ...]:
        """Return the addresses of the entry's arguments: inputs, outputs, parameters, workspace,
        sizes.

        Inputs and outputs are the arrays of the last call, which the caller must keep alive.
        """
        return tuple(int(address or 0) for address in self._args)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        """Stop the threads and unload the code; a second call does nothing."""
        self._finalizer()


def _machine_bytes() -> int:
    """Return the size of the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Slot:
    """The aligned memory for one input or output of a loaded model."""

    __slots__ = ("_bounds", "array", "buffer", "dtype", "extents", "is_held", "name", "shape")

    def __init__(
        self,
        spec: TensorSpec,
        extents: Sequence[Extent],
        passed: frozenset[str],
        is_held: bool,
    ) -> None:
        """Describe an input or output. Callers pass the sizes of the symbols in `passed`. A state
        (`is_held`) is only allocated at the typical size, because a session keeps the state's
        memory."""
        self.name = spec.name
        self.is_held = False
        self.dtype = spec.element.numpy
        self.extents = extents
        self._bounds = [upper(extent, lambda symbol: symbol.name in passed) for extent in extents]
        self.buffer: Buffer = aligned_buffer(0)
        self._lay_out(spec.typical_shape)
        self.is_held = is_held

    def part(self, sizes: Mapping[str, int]) -> Array:
        """Return the part of the memory that was written, as an array; `sizes` has the values of
        all symbols."""
        shape = tuple(evaluate(extent, sizes) for extent in self.extents)
        return self.array.reshape(-1)[: math.prod(shape)].reshape(shape)

    def resized(self, sizes: Mapping[str, int]) -> int:
        """Allocate memory for these values of symbols, and return its address; a size that the data
        decides is assumed to be at its bound."""
        shape = self._most(sizes)
        if shape != self.shape:
            self._lay_out(shape)
        return self.buffer.address

    def room(self, sizes: Mapping[str, int]) -> int:
        """Return the number of bytes that `resized` allocates."""
        return math.prod(self._most(sizes)) * self.dtype.itemsize

    def _most(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(
            extent if isinstance(extent, int) else evaluate(extent, sizes)
            for extent in self._bounds
        )

    def new(self) -> Array:
        """Return a new array for an output of the current shape. It is aligned to 64 bytes if
        vectors across cache lines would cost more than the additional memory."""
        nbytes = math.prod(self.shape) * self.dtype.itemsize
        if nbytes < _WORTH_ALIGNING:
            return np.empty(self.shape, self.dtype)
        memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + nbytes].view(self.dtype).reshape(self.shape)

    def check_fits(self, into: Array) -> None:
        """Raise InputMismatchError unless the array has the output's shape and dtype."""
        _check_fits(self.name, into, self.shape, self.dtype)

    def _lay_out(self, shape: tuple[int, ...]) -> None:
        if self.is_held:
            self.shape = shape
            return
        nbytes = math.prod(shape) * self.dtype.itemsize
        if nbytes > self.buffer.nbytes:
            self.buffer = aligned_buffer(nbytes)
        self.shape = shape
        self.array: Array = np.frombuffer(self.buffer.view[:nbytes], self.dtype).reshape(shape)

    def read(self, value: npt.ArrayLike) -> Array:
        """Return the value as a numpy array. Raises InputMismatchError."""
        try:
            return np.asarray(value)
        except ValueError as error:  # Nested lists of unequal lengths.
            raise InputMismatchError(f"input {self.name} is not an array: {error}") from error

    def placed(self, value: npt.ArrayLike) -> tuple[Array, int]:
        """Return the array that the call reads, and its address: `value` itself if it is contiguous
        and its elements are naturally aligned, otherwise a copy in the slot.

        Generated code does not require a wider alignment. A copy costs more than vectors that
        straddle two cache lines: in a matrix product these cost 5%, and the copy half of the
        product's time.
        """
        array = self.read(value)
        if array.dtype != self.dtype or array.shape != self.shape:
            raise InputMismatchError(
                f"input {self.name} is {array.dtype}{list(array.shape)}, the model takes "
                f"{self.dtype}{list(self.shape)}",
                hint="convert it with .astype(), or compile the model with another --shape",
            )
        if array.flags.c_contiguous and array.flags.aligned:
            return array, _address(array)
        np.copyto(self.array, array)
        return self.array, self.buffer.address


def _check_fits(name: str, into: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise InputMismatchError unless the array has this shape and dtype."""
    if (into.shape, into.dtype) != (shape, dtype):
        raise InputMismatchError(
            f"output {name} is {dtype}{list(shape)}, and the array for it "
            f"{into.dtype}{list(into.shape)}",
            hint="give one of that shape and dtype, or None",
        )
    if not into.flags.writeable:
        raise InputMismatchError(
            f"the array for output {name} is read-only",
            hint="give one that can be written, or None",
        )


def _copied(array: Array, into: Array | None) -> Array:
    """Return a copy of an array, in `into` if that is passed, else in a new array."""
    if into is None:
        return array.copy()
    np.copyto(into, array)
    return into


def _is_dense(array: Array) -> bool:
    return bool(array.flags.c_contiguous and array.flags.aligned)


def _address(array: Array) -> int:
    """Return the address of the first element of a C-contiguous array."""
    if array.flags.writeable and array.size and array.dtype.isbuiltin == 1:
        # This takes a sixth of the time of the general way below.
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    address: int = array.__array_interface__["data"][0]
    return address
