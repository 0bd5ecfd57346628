"""f(x @ w) with constant w: a tile of sums in registers, weights packed in panels as wide as it."""

from collections.abc import Sequence

import numpy as np

from farrier.ir.expr import Binary, BinaryOp, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.tensor import Stage
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.templates import Columns, Decisions, Estimate, Knob, Problem, Schedule, Template, knob


class DenseProduct(Template):
    name = "dense_product"
    version = 1

    def applies(self, problem: Problem) -> bool:
        match problem.program.stages:
            case [Stage(axes=[m, n], body=Reduce(ReduceOp.SUM, [k], product)), *rest]:
                match product:
                    case Binary(BinaryOp.MUL, Load(x, a), Load(w, b)):
                        row, column, step = (Var(axis.name) for axis in (m, n, k))
                        return (
                            (a, b) == ((row, step), (step, column))
                            and x.dtype is w.dtype is DType.F32
                            and w.scope is MemoryScope.CONSTANT
                            and all(
                                len(s.axes) == 2 and not isinstance(s.body, Reduce) for s in rest
                            )
                            and not problem.program.dims
                        )
        return False

    def knobs(self, problem: Problem) -> Sequence[Knob]:
        rows, columns = (axis.extent for axis in problem.program.stages[0].axes)
        vectors = -(-columns // problem.machine.lanes)
        return (
            knob("vectors", range(1, min(vectors, 4) + 1)),
            knob("rows", range(1, min(rows, 14) + 1)),
            knob("steps", (1, 2, 4, 8)),
        )

    def allowed(self, problem: Problem, decisions: Decisions) -> bool:
        sums = decisions["vectors"] * decisions["rows"]
        return sums + decisions["vectors"] + 1 <= problem.machine.registers

    def estimate(self, problem: Problem, columns: Columns) -> Estimate:
        product, machine = problem.program.stages[0], problem.machine
        (m, n), (k,) = product.axes, product.body.axes
        vectors, rows = columns["vectors"], columns["rows"]
        tiles = np.ceil(m.extent / rows) * np.ceil(n.extent / (vectors * machine.lanes))
        loads = (vectors + rows) / machine.load_ports
        step = np.maximum(
            np.maximum(vectors * rows / machine.fma_ports, loads), machine.fma_latency
        )
        cycles = tiles * k.extent * (step + 1 / columns["steps"])
        return Estimate(cycles / machine.hertz / machine.threads, {})

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
        weights, lanes = product.body.body.right.buffer.name, problem.machine.lanes
        panel = decisions["vectors"] * lanes
        packed = Layout((PhysicalDim(1, panel), PhysicalDim(0), PhysicalDim(1, 1, panel)))
        schedule.transform_layout(weights, packed)
        schedule.split(columns, panel, "panel", "in_panel")
        schedule.split("in_panel", lanes, "vector", "lane")
        schedule.split(rows, decisions["rows"], "row", "in_row")
        schedule.reorder("panel", "row", "in_row", "vector", "lane")
        schedule.compute_at(sums, "row")
        schedule.set_scope(sums, MemoryScope.REGISTER)
        schedule.split(f"{sums}_init_{n.name}", lanes, "init_vector", "init_lane")
        schedule.split(f"{sums}_{n.name}", lanes, "sum_vector", "sum_lane")
        schedule.split(f"{sums}_{k.name}", decisions["steps"], "step", "in_step")
        schedule.reorder("step", "in_step", f"{sums}_{m.name}", "sum_vector", "sum_lane")
        for loop in ("lane", "init_lane", "sum_lane"):
            schedule.vectorize(loop)
        tile = ("in_row", "vector", f"{sums}_init_{m.name}", "init_vector")
        for loop in (*tile, f"{sums}_{m.name}", "sum_vector", "in_step"):
            schedule.unroll(loop)
        if n.extent > panel:
            schedule.prefetch(weights, "panel", "step")
        schedule.parallel(schedule.fuse("panel", "row", "tile"))


TEMPLATE = DenseProduct()
