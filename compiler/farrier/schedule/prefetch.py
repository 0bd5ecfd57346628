"""The schedule primitive `prefetch`: prefetch the data of the next iteration of a loop."""

from __future__ import annotations

import dataclasses

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv, minimum, product, typical
from farrier.ir.expr import Buffer, Expr, Var
from farrier.ir.loop import For, Function, LoopKind, Prefetch, Stmt
from farrier.ir.statements import block
from farrier.ir.substitute import Substitution
from farrier.ir.types import Layout
from farrier.schedule.accesses import reads_of
from farrier.schedule.nest import NestView, Path, find, loops
from farrier.schedule.region import Interval, everything, region

_LINE = 64  # The size of a cache line in bytes.
_FEW = 32  # The most prefetches per iteration that are unrolled.


def prefetch(function: Function, buffer: str, panel: str, at: str, level: int) -> Function:
    """Prefetch the elements of a buffer that the next iteration of the loop `panel` will read. Each
    iteration of the loop `at`, which is within `panel`, prefetches an equal share of them.

    before:
        @function
        def multiply(x: f32[4, 512], w: f32[8, 512] in constant, y: f32[4, 8]):
            for o in serial(8):
                for t in serial(4):
                    for k in serial(512):
                        y[t, o] = y[t, o] + x[t, k] * w[o, k]
    after prefetch("w", "o", "t", 2):
        @function
        def multiply(x: f32[4, 512], w: f32[8, 512] in constant, y: f32[4, 8]):
            for o in serial(8):
                for t in serial(4):
                    for w_ahead in unrolled(8):
                        prefetch(w[o + 1, (t * 8 + w_ahead) * 16], level=2)
                    for k in serial(512):
                        y[t, o] = y[t, o] + x[t, k] * w[o, k]

    A panel of weights is read once for each tile of output points. If the next panel is fetched
    into cache level `level` while this one is used, its transfer from memory is hidden. The share
    is rounded up to whole cache lines; if `at` is `panel` itself, all of the next panel is
    prefetched at once. In the last iteration the addresses lie past the end of the buffer; a
    prefetch never faults.
    """
    nest = NestView(function, "prefetch")
    plan = _check(nest, buffer, panel, at, level)
    return nest.replace(plan.path, _edit(plan, level))


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    path: Path  # The path to the loop `at`.
    between: list[For]  # The loops that share the work, outermost first, `at` last.
    panel: For
    buffer: Buffer
    box: tuple[Interval, ...]  # The box that one iteration of `panel` reads.


def _check(nest: NestView, name: str, panel_name: str, at_name: str, level: int) -> _Plan:
    panel = nest.loop(panel_name)
    path = nest.path_to_loop(at_name)
    if at_name != panel_name and find(panel.body, lambda s: s is path[-1]) is None:
        nest.fail(f"{at_name} does not stand within {panel_name}")
    if level not in (1, 2, 3):
        nest.fail(f"there is no cache level {level} for {name}")
    reads = reads_of(panel.body, name)
    if not reads:
        nest.fail(f"nothing within {panel_name} reads {name}")
    nest.require_new(f"{name}_ahead")
    inner = frozenset(loop.var for loop in loops(panel.body))
    simplifier = Simplifier(nest.ranges())
    buffer = reads[0].buffer
    box = region(simplifier, [r.indices for r in reads], inner, everything(buffer.shape))
    forms = [simplifier.linear(interval.first) for interval in box]
    if not any(Var(panel_name) in form.terms for form in forms):
        nest.fail(f"what {panel_name} reads of {name} is the same in each iteration")
    around = [s for s in path if isinstance(s, For)]
    outer = [s.var for s in around].index(panel_name)
    return _Plan(path, around[outer + 1 :], panel, buffer, box)


def _edit(plan: _Plan, level: int) -> Stmt:
    loop = plan.path[-1]
    assert isinstance(loop, For)
    buffer = plan.buffer
    digits = _digits(buffer, plan.box)
    elements = product(count for _, _, count in digits)
    per_line = max(_LINE // buffer.dtype.nbytes, 1)
    # Hints need not be exact: they are shared as in the typical case.
    lines = typical(ceildiv(elements, per_line))
    share = -(-lines // max(typical(product(s.extent for s in plan.between)), 1))
    turn: Expr = e.index(0)
    for shared in plan.between:
        turn = e.add(e.mul(turn, shared.extent), Var(shared.var))
    ahead = f"{buffer.name}_ahead"
    element = e.mul(e.add(e.mul(turn, share), Var(ahead)), per_line)
    following = Substitution({plan.panel.var: e.add(Var(plan.panel.var), 1)})
    indices = [following.expr(interval.first) for interval in plan.box]
    remaining = elements
    for axis, step, count in digits:
        remaining //= count
        place = e.floordiv(element, remaining)
        # The first digit covers the elements past the panel's end.
        digit = place if remaining * count == elements else e.mod(place, count)
        indices[axis] = e.add(indices[axis], e.mul(digit, step))
    kind = LoopKind.UNROLLED if share <= _FEW else LoopKind.SERIAL
    hint = For(ahead, share, kind, Prefetch(buffer, tuple(indices), level))
    return For(loop.var, loop.extent, loop.kind, block([hint, loop.body]))


def _digits(buffer: Buffer, box: tuple[Interval, ...]) -> list[tuple[int, int, Extent]]:
    """Return (axis, step, count) for each dimension of memory that the box spans, outermost first:
    its positions are `count` indices of logical axis `axis`, `step` apart."""
    layout = buffer.layout or Layout.plain(len(buffer.shape))
    digits = []
    for dim in layout.dims:
        count = ceildiv(box[dim.axis].extent, dim.div)
        digits.append((dim.axis, dim.div, minimum(count, dim.mod) if dim.mod else count))
    return [digit for digit in digits if digit[2] != 1] or [(0, 1, 1)]
