"""The schedule primitive `tensorize`: replace a loop nest by a tensor intrinsic."""

from __future__ import annotations

from farrier.intrinsics import TensorIntrinsic, lookup, place, vector_axis
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Binary, Buffer, Cast, Const, Expr, Load, Select, Unary, Var
from farrier.ir.loop import For, Function, Intrinsic, LoopKind, Stmt, Store, Tile
from farrier.ir.substitute import Indices, Substitution, variables
from farrier.schedule.nest import NestView, Path


def tensorize(function: Function, loop: str, intrinsic: str) -> Function:
    """Replace a loop nest by a call of the tensor intrinsic that computes the same.

    before:
        @function
        def multiply(x: f32[3], w: f32[3, 16], t: f32[16]):
            for k in serial(3):
                for l in serial(16):
                    t[l] = t[l] + x[k] * w[k, l]
    after tensorize("l", "avx512_broadcast_fma"):
        @function
        def multiply(x: f32[3], w: f32[3, 16], t: f32[16]):
            for k in serial(3):
                intrinsic('avx512_broadcast_fma', tile(t[0], 0), x[k], tile(w[k, 0], 1))

    The nest must have the form in which the intrinsic is declared. Its tiles are scalars, runs of
    elements that are contiguous in their buffers, or rows of such runs.
    """
    nest = NestView(function, "tensorize")
    path, declared, operands = _check(nest, loop, intrinsic)
    return nest.replace(path, Intrinsic(declared.name, operands))


def _check(
    nest: NestView, name: str, intrinsic: str
) -> tuple[Path, TensorIntrinsic, tuple[Tile, ...]]:
    path = nest.path_to_loop(name)
    try:
        declared = lookup(intrinsic)
    except KeyError:
        nest.fail(f"no intrinsic {intrinsic} is declared")
    match = _Match(nest, declared)
    match.stmt(declared.semantics.body, path[-1])
    params = declared.semantics.params
    return path, declared, tuple(match.tiles[param.name] for param in params)


class _Match:
    """Match the declaration of an intrinsic with a nest, node by node; a difference is an error."""

    def __init__(self, nest: NestView, declared: TensorIntrinsic) -> None:
        self._nest = nest
        self._name = declared.name
        self._simplifier = Simplifier(nest.ranges())
        self._loops: dict[str, str] = {}  # The declaration's loops, by those of the nest.
        self.tiles: dict[str, Tile] = {}

    def stmt(self, wanted: Stmt, actual: Stmt) -> None:
        match wanted, actual:
            case For(var, extent, _, body), For(own, own_extent, kind, own_body):
                if kind not in (LoopKind.SERIAL, LoopKind.VECTORIZED) or extent != own_extent:
                    self._nest.fail(
                        f"{self._name} runs over {extent}, {own} is {kind} over {own_extent}"
                    )
                self._loops[own] = var
                self.stmt(body, own_body)
            case Store(tile, at, value), Store(buffer, indices, own_value):
                self.access(tile, at, buffer, indices)
                self.expr(value, own_value)
            case _:
                self._nest.fail(
                    f"{self._name} has a {type(wanted).__name__} where the nest has a "
                    f"{type(actual).__name__}"
                )

    def expr(self, wanted: Expr, actual: Expr) -> None:
        match wanted, actual:
            case Load(tile, at), Load(buffer, indices):
                self.access(tile, at, buffer, indices)
            case Binary(op, left, right), Binary(own, own_left, own_right) if op is own:
                self.expr(left, own_left)
                self.expr(right, own_right)
            case Unary(op, operand), Unary(own, own_operand) if op is own:
                self.expr(operand, own_operand)
            case Cast(dtype, operand), Cast(own, own_operand) if dtype is own:
                self.expr(operand, own_operand)
            case Select(a, b, c), Select(x, y, z):
                for operand, own_operand in ((a, x), (b, y), (c, z)):
                    self.expr(operand, own_operand)
            case Const(), Const() if wanted == actual:
                pass
            case _:
                self._nest.fail(f"{self._name} computes something else than the nest")

    def access(self, tile: Buffer, at: Indices, buffer: Buffer, indices: Indices) -> None:
        """Bind `tile`, an operand tile of the intrinsic's declaration, to the elements of `buffer`
        that the nest accesses in its place. Fail if an earlier access has bound the tile to other
        elements."""
        if tile.dtype is not buffer.dtype:
            self._nest.fail(f"{self._name} takes {tile.dtype} for {tile.name}, {buffer.name} holds "
                            f"{buffer.dtype}")  # fmt: skip
        origin = self._origin(indices)
        bound = Tile(buffer, origin, *self._axes(tile, at, buffer, indices, origin))
        if len(at) == 1 and (bound.steps or bound.axes[0] != vector_axis(buffer)):
            self._nest.fail(
                f"{self._name} takes neighbours in memory for {tile.name}; along axis "
                f"{bound.axes[0]} of {buffer.name} they do not lie so"
            )
        if len(at) > 1 and place(bound, tile, self._simplifier) is None:
            self._nest.fail(
                f"{self._name} takes rows at even distances for {tile.name}; those of "
                f"{buffer.name} do not lie so"
            )
        if self.tiles.setdefault(tile.name, bound) != bound:
            self._nest.fail(f"{self._name} uses one tile {tile.name} where the nest has several")

    def _axes(
        self, tile: Buffer, at: Indices, buffer: Buffer, indices: Indices, origin: Indices
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return two tuples for a tile: the axes of `buffer` along which the axes of the tile run,
        and the distances between successive elements along these axes, in the form of `Tile`."""
        axis_steps: dict[Expr, tuple[int, int]] = {}
        for axis, (index, start) in enumerate(zip(indices, origin, strict=True)):
            form = self._simplifier.linear(e.sub(index, start))
            for loop, step in form.terms.items():
                if loop in axis_steps or not isinstance(step, int):
                    self._nest.fail(
                        f"{self._name} takes neighbours for {tile.name}; {buffer.name} is read "
                        "along several axes at once, or at distances that a call decides"
                    )
                axis_steps[loop] = axis, step
        own = [self._in_nest(index) for index in at]
        # A loop with a single iteration runs along any axis.
        taken = {axis for axis, _ in axis_steps.values()}
        free = [axis for axis in range(len(indices)) if axis not in taken] or [0]
        for loop in own:
            if loop not in axis_steps and self._simplifier.bounds(loop) == (0, 0):
                axis_steps[loop] = free[0], 1
        if axis_steps.keys() != set(own):
            self._nest.fail(f"{self._name} runs along axes of {tile.name} that the nest does not")
        axes, steps = zip(*(axis_steps[loop] for loop in own), strict=True) if own else ((), ())
        return axes, steps if set(steps) - {1} else ()

    def _origin(self, indices: Indices) -> Indices:
        """Return the values of `indices` in the first iteration of the matched loops."""
        first = Substitution(dict.fromkeys(self._loops, e.index(0)))
        return tuple(self._simplifier.simplify(first.expr(index)) for index in indices)

    def _in_nest(self, index: Expr) -> Expr:
        """Return an index of the intrinsic's declaration, with its loop variables replaced by those
        of the matched nest."""
        names = {var: Var(own) for own, var in self._loops.items()}
        assert variables(index) <= names.keys()
        return Substitution(names).expr(index)
