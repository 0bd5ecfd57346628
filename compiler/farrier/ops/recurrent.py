"""Recurrence: the steps of LSTM, GRU and RNN after the projection of the inputs of all steps at
once.

For each direction d, step t and sequence b, with h = 0 and c = 0 where no initial state is given:

    s[g] = projected[t, b, d, g] + R[d, g] · h                    clipped, where `clip` is not 0
    lstm   i = f(s[0] + P[0]*c)   o = f(s[1] + P[1]*c')   f = f(s[2] + P[2]*c)
           c' = f*c + i*g(s[3])   h' = o*h(c')            input_forget: f = 1 - i
    gru    z = f(s[0])   r = f(s[1])   h' = (1 - z)*g(projected[2] + R[2] · (r*h)) + z*h
           linear_before_reset: g(projected[2] + r*(R[2] · h + recurrent_bias))
    rnn    h' = f(s[0])

A reversed direction takes the steps of a sequence in reverse; beyond a sequence's length Y is 0.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from farrier.ir import special
from farrier.ir.dim import Extent, ceildiv, product
from farrier.ir.dim import number as number_of
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.activation import softplus
from farrier.ops.builder import attributes_of
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    clash,
    fail_to_agree,
    float_attr,
    int_attr,
    optional,
    present,
    required,
)
from farrier.ops.scalar import (
    Scalar,
    cast,
    equal,
    expm1,
    magnitude,
    maximum,
    minimum,
    number,
    remainder,
    sigmoid,
    tanh,
    where,
)

LANES = 16  # The number of units whose weights are adjacent in memory.
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_SUMS = 8  # The number of vector sums that hides the latency of a multiply-add.
# The most sequences in a tile, which the registers of all targets can hold.
_ROWS = 32
_STEPS = 4  # Steps of a sum are unrolled by this number.


@dataclasses.dataclass(frozen=True, slots=True)
class Activation:
    """An activation function of an operand, alpha and beta, with the default values of alpha and
    beta."""

    formula: Callable[[Scalar, float, float], Scalar]
    numpy: Callable[[Array, float, float], Array]
    alpha: float | None = None  # None: the function does not use it.
    beta: float | None = None


ACTIVATIONS = {
    "relu": Activation(lambda x, a, b: maximum(x, 0), lambda x, a, b: np.maximum(x, 0)),
    "tanh": Activation(lambda x, a, b: tanh(x), lambda x, a, b: np.tanh(x)),
    "sigmoid": Activation(lambda x, a, b: sigmoid(x), lambda x, a, b: special.sigmoid(x)),
    "softsign": Activation(
        lambda x, a, b: x / (1 + magnitude(x)), lambda x, a, b: x / (1 + abs(x))
    ),
    "softplus": Activation(lambda x, a, b: softplus(x), lambda x, a, b: np.logaddexp(x, 0)),
    "affine": Activation(lambda x, a, b: x * a + b, lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": Activation(
        lambda x, a, b: where(x < 0, x * a, x), lambda x, a, b: np.where(x < 0, x * a, x), 0.01
    ),
    "thresholdedrelu": Activation(
        lambda x, a, b: where(x >= a, x, 0), lambda x, a, b: np.where(x >= a, x, 0), 1.0
    ),
    "scaledtanh": Activation(
        lambda x, a, b: tanh(x * b) * a, lambda x, a, b: np.tanh(x * b) * a, 1.0, 1.0
    ),
    "hardsigmoid": Activation(
        lambda x, a, b: minimum(maximum(x * a + b, 0), 1),
        lambda x, a, b: np.clip(x * a + b, 0, 1),
        0.2,
        0.5,
    ),
    "elu": Activation(
        lambda x, a, b: where(x < 0, expm1(x) * a, x),
        lambda x, a, b: np.where(x < 0, np.expm1(np.minimum(x, 0)) * a, x),
        1.0,
    ),
}


class _Cell:
    """The attributes of a Recurrence node."""

    def __init__(self, attrs: Attrs) -> None:
        self.kind = str(attrs["cell"])
        self.hidden = int_attr(attrs, "hidden")
        self.is_batch_first = bool(int_attr(attrs, "layout", 0))
        self.linear_before_reset = bool(int_attr(attrs, "linear_before_reset", 0))
        self.input_forget = bool(int_attr(attrs, "input_forget", 0))
        self.clip = float_attr(attrs, "clip", 0.0)
        self.gates = GATES[self.kind]
        self.is_reversed: Sequence[int] = attrs["reversed"]  # type: ignore[assignment]
        self._names: Sequence[str] = attrs["activations"]  # type: ignore[assignment]
        self._alphas: Sequence[float] = attrs["alphas"]  # type: ignore[assignment]
        self._betas: Sequence[float] = attrs["betas"]  # type: ignore[assignment]

    @property
    def directions(self) -> int:
        return len(self.is_reversed)

    def activation(self, direction: int, which: int) -> tuple[Activation, float, float]:
        """Return activation function number `which` (0, 1, 2 for f, g, h) of a direction, its alpha
        and its beta."""
        at = direction * (len(self._names) // self.directions) + which
        return ACTIVATIONS[self._names[at]], self._alphas[at], self._betas[at]

    def steps_and_batch(self, shape: Sequence[Extent]) -> tuple[Extent, Extent]:
        """Return the numbers of steps and of sequences from the shape of a tensor that begins with
        these axes."""
        return (shape[1], shape[0]) if self.is_batch_first else (shape[0], shape[1])


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    cell, x, weights = _Cell(attrs), required(types, 0), required(types, 1)
    blocks = -(-cell.hidden // LANES)
    wanted = (cell.directions, blocks, cell.hidden, cell.gates, LANES)
    width = cell.directions * cell.gates * cell.hidden
    if x.rank != 3 or fail_to_agree(x.shape[2], width) or clash(weights.shape, wanted):
        raise Mismatch(f"inputs {x.shape} and weights {weights.shape} for {cell.hidden} units")
    steps, batch = cell.steps_and_batch(x.shape)
    if cell.is_batch_first:
        all_states: tuple[Extent, ...] = (batch, steps, cell.directions, cell.hidden)
        last: tuple[Extent, ...] = (batch, cell.directions, cell.hidden)
    else:
        all_states = (steps, cell.directions, batch, cell.hidden)
        last = (cell.directions, batch, cell.hidden)
    for position, shape in ((2, (batch,)), (3, last), (4, last)):
        type = types[position] if position < len(types) else None
        if type is not None and clash(type.shape, shape):
            raise Mismatch(f"input {position} is {type.shape}, and must be {shape}")
    states = (TensorType(x.dtype, last),) * (2 if cell.kind == "lstm" else 1)
    return (TensorType(x.dtype, all_states), *states)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    cell, x = _Cell(attrs), present(arrays, 0)
    projected = np.swapaxes(x, 0, 1) if cell.is_batch_first else x
    steps, batch = projected.shape[:2]
    shape = (cell.directions, batch, cell.hidden)
    projected = projected.reshape(steps, batch, cell.directions, cell.gates, cell.hidden)
    weights = np.moveaxis(present(arrays, 1), 1, 3).reshape(*shape[:1], cell.hidden, cell.gates, -1)
    declared = optional(arrays, 2)
    lengths = np.full(batch, steps) if declared is None else np.clip(declared, 0, steps)
    ends = [_state(optional(arrays, position), cell, shape, x.dtype) for position in (3, 4)]
    every = np.zeros((steps, *shape), x.dtype)
    for d in range(cell.directions):
        for b in range(batch):
            for t in range(lengths[b]):
                at = lengths[b] - 1 - t if cell.is_reversed[d] else t
                parts = _ReferenceStep(cell, d, arrays, weights[d, :, :, : cell.hidden])
                h, c = parts.run(projected[at, b, d], ends[0][d, b], ends[1][d, b])
                every[at, d, b], ends[0][d, b], ends[1][d, b] = h, h, c
    last = ends[: 2 if cell.kind == "lstm" else 1]
    if cell.is_batch_first:
        return (every.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last))
    return (every, *last)


def _state(
    initial: Array | None, cell: _Cell, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> Array:
    """Return the initial hidden or cell state as [directions, batch, hidden]: zeros if there is
    none."""
    if initial is None:
        return np.zeros(shape, dtype)
    return np.array(np.swapaxes(initial, 0, 1) if cell.is_batch_first else initial)


@dataclasses.dataclass(frozen=True, slots=True)
class _ReferenceStep:
    cell: _Cell
    direction: int
    arrays: Arrays
    weights: Array  # [hidden, gates, hidden]

    def run(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Return hidden and cell state of a sequence after a step. `x` is the projected input,
        [gates, hidden]; `h` and `c` are the states before the step."""
        s = x + np.einsum("kgu,k->gu", self.weights, h)
        if self.cell.kind == "rnn":
            return self._apply(0, s[0]), c
        if self.cell.kind == "gru":
            z, r = self._apply(0, s[0]), self._apply(0, s[1])
            if self.cell.linear_before_reset:
                bias = optional(self.arrays, 6)
                inner = r * (s[2] - x[2] + (0 if bias is None else bias[self.direction]))
            else:
                inner = (r * h) @ self.weights[:, 2]
            return (1 - z) * self._apply(1, x[2] + inner) + z * h, c
        peepholes = optional(self.arrays, 5)
        p = np.zeros((3, 1)) if peepholes is None else peepholes[self.direction].reshape(3, -1)
        i = self._apply(0, s[0] + (p[0] * c).astype(c.dtype))
        f = 1 - i if self.cell.input_forget else self._apply(0, s[2] + (p[2] * c).astype(c.dtype))
        c = f * c + i * self._apply(1, s[3])
        o = self._apply(0, s[1] + (p[1] * c).astype(c.dtype))
        return o * self._apply(2, c, clips=False), c

    def _apply(self, which: int, x: Array, clips: bool = True) -> Array:
        function, alpha, beta = self.cell.activation(self.direction, which)
        if self.cell.clip and clips:
            x = np.clip(x, -self.cell.clip, self.cell.clip)
        return np.asarray(function.numpy(x, alpha, beta), x.dtype)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops: over steps, and in each step over tiles of directions, sequences and blocks
    of hidden units, whose sums stay in registers. Each state has two buffers, for the previous and
    the current step."""
    _RecurrentKernel(nest, _Cell(attributes_of(node))).write()


class _RecurrentKernel:
    """The tensors and constants of a recurrent kernel that do not change between steps."""

    def __init__(self, nest: LoopBuilder, cell: _Cell) -> None:
        self.nest, self.cell = nest, cell
        shape = nest.shape(0)
        self.steps, self.batch = cell.steps_and_batch(shape)
        self.projected = nest.input(0, (*shape[:2], cell.directions, cell.gates, cell.hidden))
        self.dtype = self.projected.dtype
        self.weights = nest.input(1)
        self.lengths = nest.optional(2)
        self.peepholes = nest.optional(5, (cell.directions, 3, cell.hidden))
        self.recurrent_bias = nest.optional(6)
        self.every = nest.output(0)
        states = (2, cell.directions, self.batch, cell.hidden)
        self.h = nest.shared("h", states, self.dtype)
        self.c = nest.shared("c", states, self.dtype) if cell.kind == "lstm" else None
        self.blocks = number_of(self.weights.shape[1])
        # A tile of several sequences shares the weights that it reads; a tile of one sequence has
        # several blocks of units.
        self.tile_rows: Extent = 1  # Most of a tile may be unused if this is symbolic.
        if isinstance(self.batch, int):
            self.tile_rows = nest.choice("rows", min(self.batch, _ROWS))
        self.tile_blocks = nest.choice("blocks", min(self.blocks, _SUMS // cell.gates))

    def write(self) -> None:
        nest, cell = self.nest, self.cell
        states = [state for state in (self.h, self.c) if state is not None]
        for position, state in enumerate(states, start=3):
            self._begin(nest.optional(position), state)
        shape = (cell.directions, self.batch, cell.hidden)
        resets_first = cell.kind == "gru" and not cell.linear_before_reset
        kept, gated = (
            nest.shared(name, shape if resets_first else (), self.dtype)
            for name in ("kept", "gated")
        )
        with nest.for_(self.steps, "step") as step:
            if resets_first:
                with self._tiles(step) as tile:
                    tile.add(self.h, (tile.now,), (0, 1))
                    tile.reset(kept, gated)
                with self._tiles(step) as tile:
                    tile.add(gated, (), (2,))
                    tile.finish(kept)
            else:
                with self._tiles(step) as tile:
                    tile.add(self.h, (tile.now,), range(cell.gates))
                    tile.finish(kept)
        for position, state in enumerate(states, start=1):
            self._end(state, nest.output(position))

    @contextlib.contextmanager
    def _tiles(self, step: Scalar) -> Iterator[_Tile]:
        """Loop over all tiles of a step. The order is reversed at each step, so that the weights
        that the previous step has read last are still in the cache. Tiles store different elements,
        so they run in parallel."""
        nest, rows = self.nest, ceildiv(self.batch, self.tile_rows)
        shape = (self.cell.directions, ceildiv(self.blocks, self.tile_blocks), rows)
        count = product(shape)
        parts = nest.choice("parts", self.cell.directions * self.blocks * self.batch)
        each = ceildiv(count, parts)
        with nest.independent(parts, "part") as part, nest.for_(each) as turn:
            back = number(each, DType.I64) - 1 - turn
            mine = where(equal(remainder(step, 2), 0), turn, back)
            with nest.if_(part * each + mine < count):
                tile = nest.let(part * each + mine, "tile")
                direction, blocks, row = nest.unravel(tile, shape)
                yield _Tile(self, step, direction, row, blocks)

    def place(self, at: tuple[Scalar, Scalar], unit: Scalar) -> tuple[Scalar, ...]:
        """Return the index of a state's element in the model's tensors; `at` is (direction,
        sequence)."""
        return (at[1], at[0], unit) if self.cell.is_batch_first else (*at, unit)

    def _begin(self, initial: Tensor | None, state: Tensor) -> None:
        nest, cell = self.nest, self.cell
        with (
            nest.points((cell.directions, self.batch)) as (direction, row),
            nest.for_(cell.hidden, "unit") as unit,
        ):
            at = (direction, row)
            start = number(0, self.dtype) if initial is None else initial[self.place(at, unit)]
            state[0, direction, row, unit] = start

    def _end(self, state: Tensor, output: Tensor) -> None:
        nest, cell = self.nest, self.cell
        last = remainder(number(self.steps, DType.I64), 2)
        with (
            nest.points((cell.directions, self.batch)) as (direction, row),
            nest.for_(cell.hidden, "unit") as unit,
        ):
            output[self.place((direction, row), unit)] = state[last, direction, row, unit]

    def activate(self, which: int, direction: Scalar, x: Scalar, clips: bool = True) -> Scalar:
        """Apply activation function number `which` (0, 1, 2 for f, g, h) of the direction to x,
        which is first clipped if `clips` and the node has the attribute `clip`."""
        if self.cell.clip and clips:
            x = minimum(maximum(x, -self.cell.clip), self.cell.clip)
        chosen = [self.cell.activation(d, which) for d in range(self.cell.directions)]
        results = [function.formula(x, alpha, beta) for function, alpha, beta in chosen]
        return results[0] if len(set(chosen)) == 1 else where(direction < 1, *results)


class _Tile:
    """A tile of one direction at one step: some sequences and some blocks of hidden units, with the
    sums of their gates."""

    def __init__(
        self,
        kernel: _RecurrentKernel,
        step: Scalar,
        direction: Scalar,
        rows: Scalar,
        blocks: Scalar,
    ) -> None:
        self.kernel, self.direction = kernel, direction
        self.now, self.then = remainder(step, 2), remainder(step + 1, 2)
        nest, count = kernel.nest, (kernel.tile_rows,)
        self._first_row, self._first_block = rows * kernel.tile_rows, blocks * kernel.tile_blocks
        # By sequence of the tile: its number (the last sequence's for a row beyond); its position
        # in time; whether it has this step.
        self._row = nest.registers("row", count, DType.I64)
        self._time = nest.registers("time", count, DType.I64)
        self._is_within = None
        if kernel.lengths is not None:
            self._is_within = nest.registers("is_within", count, DType.BOOL)
        with nest.unrolled(kernel.tile_rows, "i") as i:
            self._row[i] = minimum(self._first_row + i, kernel.batch - 1)
            self._set_time(step, i)
        self._sums: dict[int, Tensor] = {}  # By gate: [rows, vectors, LANES].
        # The projected inputs are added last, and may come from another core, so they are
        # prefetched.
        with self._each() as (i, v):
            for gate in range(kernel.cell.gates):
                unit = (self._first_block + v) * LANES
                kernel.projected.prefetch(*self._projected_at(i, gate, unit))

    @contextlib.contextmanager
    def _each(self) -> Iterator[tuple[Scalar, Scalar]]:
        """Loop over the sequences and blocks of the tile."""
        nest, kernel = self.kernel.nest, self.kernel
        with nest.unrolled(kernel.tile_rows, "i") as i, nest.unrolled(kernel.tile_blocks, "v") as v:
            yield i, v

    def _set_time(self, step: Scalar, i: Scalar) -> None:
        """Set the time index that sequence `i` of the tile reads at this step; for a reversed
        direction it counts down from the sequence's length. Beyond the length, it is `step`."""
        kernel, nest = self.kernel, self.kernel.nest
        length = number(kernel.steps, DType.I64)
        if kernel.lengths is not None and self._is_within is not None:
            declared = cast(kernel.lengths[self._row[i]], DType.I64)
            length = nest.let(minimum(maximum(declared, 0), kernel.steps), "length")
            self._is_within[i] = step < length
        backward = length - 1 - step
        if self._is_within is not None:
            backward = where(self._is_within[i], backward, step)
        reverses = kernel.cell.is_reversed
        if all(reverses):
            self._time[i] = backward
        else:
            self._time[i] = where(self.direction < 1, step, backward) if any(reverses) else step

    def add(self, state: Tensor, prefix: tuple[Scalar, ...], gates: Sequence[int]) -> None:
        """Compute the sums of some gates: recurrent weights times `state`."""
        kernel, nest = self.kernel, self.kernel.nest
        shape = (kernel.tile_rows, kernel.tile_blocks, LANES)
        for gate in gates:
            self._sums[gate] = nest.registers("sum", shape, kernel.dtype)
            with self._each() as (i, v), nest.for_(LANES, "lane") as lane:
                self._sums[gate][i, v, lane] = 0
        steps = [(nest.for_(kernel.cell.hidden // _STEPS, "k"), _STEPS, 0)]
        done = kernel.cell.hidden // _STEPS * _STEPS
        steps += [(nest.for_(kernel.cell.hidden - done, "k"), 1, done)]
        for loop, count, first in steps:
            with loop as k, nest.unrolled(count) as j:
                at = k * count + j + first
                for gate, sums in self._sums.items():
                    self._multiply(sums, gate, at, state, prefix)

    def _projected_at(self, i: Scalar, gate: int, unit: Scalar) -> tuple[Scalar | int, ...]:
        time, row = self._time[i], self._row[i]
        at = (row, time) if self.kernel.cell.is_batch_first else (time, row)
        return (*at, self.direction, gate, unit)

    def _multiply(
        self, sums: Tensor, gate: int, k: Scalar, state: Tensor, prefix: tuple[Scalar, ...]
    ) -> None:
        """Add the products of weight row `k` and element `k` of `state` to the sums of a gate."""
        kernel, nest = self.kernel, self.kernel.nest
        with (
            nest.unrolled(kernel.tile_blocks, "v") as v,
            nest.unrolled(kernel.tile_rows, "i") as i,
            nest.for_(LANES, "lane") as lane,
        ):
            inside = minimum(self._first_block + v, kernel.blocks - 1)
            weight = kernel.weights[self.direction, inside, k, gate, lane]
            factor = state[(*prefix, self.direction, self._row[i], k)]
            sums[i, v, lane] = sums[i, v, lane] + factor * weight

    @contextlib.contextmanager
    def _units(self) -> Iterator[tuple[Scalar, Scalar, Scalar, list[Scalar], Tensor]]:
        """Loop over the hidden units of the tile, without the padding of the last block. Yield the
        sequence's index in the tile, the lane, the number of the unit, its sums by gate, and a
        register array with one value for each lane."""
        kernel, nest = self.kernel, self.kernel.nest
        with self._each() as (i, v), contextlib.ExitStack() as stack:
            if kernel.tile_rows != 1:
                stack.enter_context(nest.if_(self._first_row + i < kernel.batch))
            block = self._first_block + v
            if kernel.tile_blocks != 1:
                stack.enter_context(nest.if_(block < kernel.blocks))
            values = nest.registers("made", (LANES,), kernel.dtype)
            lane = stack.enter_context(nest.for_(LANES, "lane"))
            unit = block * LANES + lane
            if kernel.cell.hidden % LANES:
                stack.enter_context(nest.if_(unit < kernel.cell.hidden))
            sums = [
                self._operand(i, gate, unit, tensor[i, v, lane])
                for gate, tensor in self._sums.items()
            ]
            yield i, lane, unit, sums, values

    def _operand(self, i: Scalar, gate: int, unit: Scalar, total: Scalar) -> Scalar:
        """Return a gate's sum plus the projected input. In a GRU with `linear_before_reset`, the
        last gate's sum gets the recurrent bias instead."""
        kernel = self.kernel
        if kernel.cell.kind == "gru" and kernel.cell.linear_before_reset and gate == 2:
            bias = kernel.recurrent_bias
            return total if bias is None else total + bias[self.direction, unit]
        return total + self._projected(i, gate, unit)

    def _projected(self, i: Scalar, gate: int, unit: Scalar) -> Scalar:
        return self.kernel.projected[self._projected_at(i, gate, unit)]

    def reset(self, kept: Tensor, gated: Tensor) -> None:
        """Compute the gates z and r of a GRU; store z in `kept` and r * h in `gated`."""
        kernel = self.kernel
        with self._units() as (i, _, unit, (update, reset), _):
            at = (self.direction, self._row[i], unit)
            kept[at] = kernel.activate(0, self.direction, update)
            gated[at] = kernel.activate(0, self.direction, reset) * kernel.h[(self.now, *at)]

    def finish(self, kept: Tensor) -> None:
        """Compute and store the states after this step. `kept` holds the gate z of a GRU."""
        kernel = self.kernel
        with self._units() as (i, lane, unit, sums, values):
            at = (self.direction, self._row[i], unit)
            is_within = None if self._is_within is None else self._is_within[i]
            if kernel.c is not None:
                values[lane] = self._cell_state(at, sums)
                self._store(kernel.c, at, values[lane], is_within)
            state = self._state(i, at, sums, values[lane], kept)
            values[lane] = state
            self._store(kernel.h, at, values[lane], is_within)
            time, seen = self._time[i], values[lane]
            place = kernel.place((self.direction, at[1]), unit)
            shown = seen if is_within is None else where(is_within, seen, 0)
            if kernel.cell.is_batch_first:
                kernel.every[(place[0], time, *place[1:])] = shown
            else:
                kernel.every[(time, *place)] = shown

    def _store(
        self, state: Tensor, at: tuple[Scalar, ...], new: Scalar, is_within: Scalar | None
    ) -> None:
        """Store an element of a state after this step: `new`, or the old value for a sequence that
        has ended (`is_within` is false)."""
        old = state[(self.now, *at)]
        state[(self.then, *at)] = new if is_within is None else where(is_within, new, old)

    def _cell_state(self, at: tuple[Scalar, ...], sums: list[Scalar]) -> Scalar:
        kernel = self.kernel
        assert kernel.c is not None
        c = kernel.c[(self.now, *at)]
        i = kernel.activate(0, self.direction, self._peeped(sums[0], 0, at, c))
        forget = kernel.activate(0, self.direction, self._peeped(sums[2], 2, at, c))
        forget = 1 - i if kernel.cell.input_forget else forget
        return forget * c + i * kernel.activate(1, self.direction, sums[3])

    def _peeped(self, x: Scalar, which: int, at: tuple[Scalar, ...], c: Scalar) -> Scalar:
        """Return the operand of a gate, plus the peephole weights times the cell state `c` if the
        operator has such weights. `which` is the gate's number among them."""
        peepholes = self.kernel.peepholes
        return x if peepholes is None else x + peepholes[at[0], which, at[2]] * c

    def _state(
        self,
        i: Scalar,
        at: tuple[Scalar, ...],
        sums: list[Scalar],
        cell_state: Scalar,
        kept: Tensor,
    ) -> Scalar:
        """Return an element of the hidden state after this step; `cell_state` is the new cell state
        of an LSTM."""
        kernel, direction = self.kernel, self.direction
        if kernel.cell.kind == "lstm":
            shown = kernel.activate(2, direction, cell_state, clips=False)
            return kernel.activate(0, direction, self._peeped(sums[1], 1, at, cell_state)) * shown
        if kernel.cell.kind == "rnn":
            return kernel.activate(0, direction, sums[0])
        if kernel.cell.linear_before_reset:
            update, reset = (kernel.activate(0, direction, sums[gate]) for gate in range(2))
            inner = self._projected(i, 2, at[2]) + reset * sums[2]
        else:
            update, inner = kept[at], sums[0]
        return (1 - update) * kernel.activate(1, direction, inner) + update * kernel.h[
            (self.now, *at)
        ]


OPERATORS: tuple[Operator, ...] = (
    Operator("Recurrence", Kind.NEST, _infer, _reference, None, nest=_nest),
)
