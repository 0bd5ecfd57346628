"""f(x @ w) with constant w: a tile of sums in registers, weights packed in panels as wide as it."""

from collections.abc import Sequence

from farrier.ir.expr import Binary, BinaryOp, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.tensor import Stage
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.templates import Decisions, Knob, Problem, Schedule, Template, knob


class DenseProduct(Template):
    name = "dense_product"
    version = 1

    def applies(self, problem: Problem) -> bool:
        match problem.program.stages:
            case [
                Stage(
                    axes=[m, n],
                    body=Reduce(ReduceOp.SUM, [k], Binary(BinaryOp.MUL, Load(x, a), Load(w, b))),
                ),
                *rest,
            ]:
                row, column, step = (Var(axis.name) for axis in (m, n, k))
                is_product = a == (row, step) and b == (step, column)
                is_f32 = x.dtype is w.dtype is DType.F32 and w.scope is MemoryScope.CONSTANT
                is_plain = all(len(s.axes) == 2 and not isinstance(s.body, Reduce) for s in rest)
                return is_product and is_f32 and is_plain and not problem.program.dims
        return False

    def knobs(self, problem: Problem) -> Sequence[Knob]:
        rows, columns = (axis.extent for axis in problem.program.stages[0].axes)
        vectors = -(-columns // problem.machine.lanes)
        return (
            knob("vectors", [count for count in (2, 1, 3, 4, 6) if count <= vectors] or [1]),
            knob("rows", [count for count in (6, *range(1, 6), *range(7, 15)) if count <= rows]),
            knob("steps", (4, 1, 2, 8)),
            knob("panels_first", (1, 0)),
        )

    def allowed(self, problem: Problem, decisions: Decisions) -> bool:
        sums = decisions["vectors"] * decisions["rows"]
        return sums + decisions["vectors"] + 1 <= problem.machine.registers

    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        product, *rest = problem.program.stages
        (m, n), (k,) = product.axes, product.body.axes
        sums, output = product.buffer.name, (rest or [product])[-1]
        if not rest:
            schedule.cache_write(sums, "sums")
            sums = "sums"
        for stage in rest[:-1]:
            schedule.inline(stage.buffer.name)
        rows, columns = (f"{output.buffer.name}_{axis.name}" for axis in output.axes)
        lanes = problem.machine.lanes
        panel = decisions["vectors"] * lanes
        packed = Layout((PhysicalDim(1, panel), PhysicalDim(0), PhysicalDim(1, 1, panel)))
        schedule.transform_layout(product.body.body.right.buffer.name, packed)
        schedule.split(columns, panel, "panel", "in_panel")
        schedule.split("in_panel", lanes, "vector", "lane")
        schedule.split(rows, decisions["rows"], "row", "in_row")
        outer = ("panel", "row") if decisions["panels_first"] else ("row", "panel")
        schedule.reorder(*outer, "in_row", "vector", "lane")
        schedule.compute_at(sums, outer[1])
        schedule.set_scope(sums, MemoryScope.REGISTER)
        schedule.split(f"{sums}_init_{n.name}", lanes, "init_vector", "init_lane")
        schedule.split(f"{sums}_{n.name}", lanes, "sum_vector", "sum_lane")
        schedule.split(f"{sums}_{k.name}", decisions["steps"], "step", "in_step")
        schedule.reorder("step", "in_step", f"{sums}_{m.name}", "sum_vector", "sum_lane")
        for loop in ("lane", "init_lane", "sum_lane"):
            schedule.vectorize(loop)
        for loop in ("in_row", "vector", f"{sums}_init_{m.name}", "init_vector"):
            schedule.unroll(loop)
        for loop in (f"{sums}_{m.name}", "sum_vector", "in_step"):
            schedule.unroll(loop)
        schedule.parallel(schedule.fuse(*outer, "tile"))


TEMPLATE = DenseProduct()
