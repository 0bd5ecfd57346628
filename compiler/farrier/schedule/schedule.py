"""The class Schedule: a function to which primitives are applied, and the trace of them."""

from __future__ import annotations

from farrier.errors import CompilerError
from farrier.ir.dim import Extent
from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Function
from farrier.ir.types import Layout
from farrier.schedule.nest import NestView
from farrier.schedule.primitives import PRIMITIVES
from farrier.schedule.trace import Argument, Step, Trace


class Schedule:
    """A function and the trace of the primitives that were applied to it.

    Each method applies a primitive to `function` and appends it to `trace`. A primitive that would
    change the function's result raises ScheduleError and leaves the function unchanged. The
    functions of the same names in `farrier.schedule` document the primitives, with code before and
    after.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.trace = Trace()

    def apply(self, primitive: str, *args: Argument) -> None:
        """Apply the primitive with this name, and append it to the trace; raises CompilerError for
        an unknown name."""
        function = PRIMITIVES.get(primitive)
        if function is None:
            raise CompilerError(f"there is no schedule primitive {primitive!r}")
        self.function = function(self.function, *args)
        self.trace = self.trace.then(Step(primitive, args))

    def split(self, loop: str, factor: int, outer: str = "", inner: str = "") -> tuple[str, str]:
        """Split a loop; return the names of the outer and the inner loop, by default `<loop>_o` and
        `<loop>_i`."""
        outer, inner = outer or f"{loop}_o", inner or f"{loop}_i"
        self.apply("split", loop, factor, outer, inner)
        return outer, inner

    def split_evenly(
        self, loop: str, parts: int, most: int, step: int, outer: str, inner: str
    ) -> tuple[str, str]:
        """Split a loop into chunks of equal size; return the names of the outer and the inner
        loop."""
        self.apply("split_evenly", loop, parts, most, step, outer, inner)
        return outer, inner

    def fuse(self, outer: str, inner: str, name: str) -> str:
        self.apply("fuse", outer, inner, name)
        return name

    def extent(self, loop: str) -> Extent:
        """Return the number of iterations of a loop. Raises ScheduleError for an unknown name."""
        return NestView(self.function, "extent").loop(loop).extent

    def cut(self, loop: str, at: int, rest: str) -> str:
        """Cut the range of a loop in two; return the name of the second loop, over the iterations
        from `at` on."""
        self.apply("cut", loop, at, rest)
        return rest

    def reorder(self, *loops: str) -> None:
        self.apply("reorder", loops)

    def choose(self, choice: str, value: int) -> None:
        self.apply("choose", choice, value)

    def independent(self, loop: str) -> None:
        self.apply("independent", loop)

    def parallel(self, loop: str) -> None:
        self.apply("parallel", loop)

    def serialize(self, loop: str) -> None:
        self.apply("serialize", loop)

    def vectorize(self, *loops: str) -> None:
        for loop in loops:
            self.apply("vectorize", loop)

    def unroll(self, *loops: str) -> None:
        for loop in loops:
            self.apply("unroll", loop)

    def pipeline(self, loop: str) -> None:
        self.apply("pipeline", loop)

    def dot(self, loop: str) -> None:
        self.apply("dot", loop)

    def group(self, loop: str) -> None:
        self.apply("group", loop)

    def inline(self, buffer: str) -> None:
        self.apply("inline", buffer)

    def cache_read(self, buffer: str, loop: str, name: str) -> None:
        self.apply("cache_read", buffer, loop, name)

    def cache_write(self, buffer: str, name: str) -> None:
        self.apply("cache_write", buffer, name)

    def compute_at(self, buffer: str, loop: str) -> None:
        self.apply("compute_at", buffer, loop)

    def compute_whole_at(self, buffer: str, loop: str) -> None:
        self.apply("compute_whole_at", buffer, loop)

    def set_scope(self, buffer: str, scope: MemoryScope) -> None:
        self.apply("set_scope", buffer, str(scope))

    def hoist(self, buffer: str) -> None:
        self.apply("hoist", buffer)

    def transform_layout(self, buffer: str, layout: Layout) -> None:
        self.apply("transform_layout", buffer, layout)

    def merge_axes(self, buffer: str, axis: int) -> None:
        self.apply("merge_axes", buffer, axis)

    def pad_axis(self, buffer: str, axis: int, extent: int) -> None:
        self.apply("pad_axis", buffer, axis, extent)

    def swizzle(self, buffer: str, chunk: int, rows: int, count: int) -> None:
        self.apply("swizzle", buffer, chunk, rows, count)

    def partition(self, buffer: str, axis: int, banks: int) -> None:
        self.apply("partition", buffer, axis, banks)

    def reuse_buffer(self, buffer: str, loop: str, name: str) -> str:
        """Keep what iterations of a loop read again; return the name of the buffer."""
        self.apply("reuse_buffer", buffer, loop, name)
        return name

    def prefetch(self, buffer: str, panel: str, at: str, level: int = 2) -> None:
        self.apply("prefetch", buffer, panel, at, level)

    def rfactor(self, loop: str, name: str) -> None:
        self.apply("rfactor", loop, name)

    def bind(self, loop: str, to: str) -> None:
        self.apply("bind", loop, to)

    def cooperate(self, loop: str, threads: int, row: int, thread: str) -> str:
        """Distribute the points of a loop nest over threads; return the name of the loop over the
        threads."""
        self.apply("cooperate", loop, threads, row, thread)
        return thread

    def split_axes(self, buffer: str, factors: tuple[int, ...]) -> None:
        self.apply("split_axes", buffer, factors)

    def double_buffer(self, buffer: str) -> None:
        self.apply("double_buffer", buffer)

    def tile_product(
        self,
        total: str,
        reader: str,
        threads: tuple[int, int],
        each: tuple[int, int],
        depth: int,
    ) -> None:
        self.apply("tile_product", total, reader, threads, each, depth)

    def sum_neighbours(
        self, total: str, reader: str, threads: int, each: tuple[int, int], unrolled: int
    ) -> None:
        self.apply("sum_neighbours", total, reader, threads, each, unrolled)

    def transpose_tiles(self, buffer: str, source: str, size: int, rows: int) -> None:
        self.apply("transpose_tiles", buffer, source, size, rows)

    def share_sums(
        self,
        total: str,
        reader: str,
        threads: int,
        groups: int,
        each: tuple[int, int],
        run: int,
        turns: int = 1,
        lanes: int = 1,
    ) -> None:
        self.apply("share_sums", total, reader, threads, groups, each, run, turns, lanes)

    def subgroup_product(
        self,
        total: str,
        reader: str,
        intrinsic: str,
        subgroups: tuple[int, int],
        each: tuple[int, int],
        depth: int,
        stages: int,
    ) -> None:
        self.apply("subgroup_product", total, reader, intrinsic, subgroups, each, depth, stages)

    def warpgroup_product(
        self,
        total: str,
        reader: str,
        intrinsic: str,
        warpgroups: tuple[int, int],
        each: tuple[int, int],
        depth: int,
        stages: int,
        fetches: bool = False,
    ) -> None:
        shape = warpgroups, each, depth, stages
        self.apply("warpgroup_product", total, reader, intrinsic, *shape, fetches)

    def share_rows(
        self,
        buffers: tuple[str, ...],
        rows: int,
        threads: int,
        shared_bytes: int,
        lanes: int = 1,
    ) -> None:
        self.apply("share_rows", buffers, rows, threads, shared_bytes, lanes)

    def attend(
        self,
        first: tuple[str, ...],
        between: tuple[str, ...],
        last: tuple[str, ...],
        threads: tuple[int, int],
        each: tuple[int, int],
        depth: int,
        lanes: int = 1,
    ) -> None:
        self.apply("attend", first, between, last, threads, each, depth, lanes)

    def attend_fragments(
        self,
        first: tuple[str, ...],
        between: tuple[str, ...],
        last: tuple[str, ...],
        intrinsic: str,
        subgroups: int,
        keys: int,
    ) -> None:
        self.apply("attend_fragments", first, between, last, intrinsic, subgroups, keys)

    def tensorize(self, loop: str, intrinsic: str) -> None:
        self.apply("tensorize", loop, intrinsic)


def replay(trace: Trace, function: Function) -> Function:
    """Apply the steps of `trace` to `function` and return the result."""
    schedule = Schedule(function)
    for step in trace.steps:
        schedule.apply(step.primitive, *step.args)
    return schedule.function
