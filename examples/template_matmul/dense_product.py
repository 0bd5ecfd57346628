"""f(x @ w) with constant w: a tile of sums in registers, weights packed in panels as wide as it."""

from collections.abc import Sequence

import numpy as np

from farrier.ir.expr import MemoryScope
from farrier.ir.types import DType
from farrier.templates import Columns, Decisions, Estimate, Knob, Problem, Schedule, Template, knob


class DenseProduct(Template):
    name = "dense_product"
    version = 1

    def applies(self, problem: Problem) -> bool:
        product = problem.product
        is_known = product is not None and product.has_constant_weights
        return is_known and product.dtype is DType.F32

    def knobs(self, problem: Problem) -> Sequence[Knob]:
        product = problem.product
        vectors = -(-product.columns // problem.machine.lanes)
        return (
            knob("vectors", range(1, min(vectors, 4) + 1)),
            knob("rows", range(1, min(product.rows, 14) + 1)),
            knob("steps", (1, 2, 4, 8)),
        )

    def allowed(self, problem: Problem, decisions: Decisions) -> bool:
        sums = decisions["vectors"] * decisions["rows"]
        return sums + decisions["vectors"] + 1 <= problem.machine.registers

    def estimate(self, problem: Problem, columns: Columns) -> Estimate:
        product, machine = problem.product, problem.machine
        vectors, rows = columns["vectors"], columns["rows"]
        tiles = np.ceil(product.rows / rows) * np.ceil(product.columns / (vectors * machine.lanes))
        multiplied = np.maximum(vectors * rows / machine.fma_ports, machine.fma_latency)
        step = np.maximum(multiplied, (vectors + rows) / machine.load_ports)
        cycles = tiles * product.steps * (step + 1 / columns["steps"])
        return Estimate(cycles / machine.hertz / machine.threads, {})

    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        product, lanes = problem.product, problem.machine.lanes
        panel = decisions["vectors"] * lanes
        product.pack(schedule, panel)
        loops = product.loops(schedule)
        schedule.split(loops.columns, panel, "panel", "in_panel")
        schedule.split("in_panel", lanes, "vector", "lane")
        schedule.split(loops.rows, decisions["rows"], "row", "in_row")
        schedule.reorder("panel", "row", "in_row", "vector", "lane")
        schedule.compute_at(loops.sums, "row")
        schedule.set_scope(loops.sums, MemoryScope.REGISTER)
        schedule.split(loops.zero_columns, lanes, "zero_vector", "zero_lane")
        schedule.split(loops.sum_columns, lanes, "sum_vector", "sum_lane")
        schedule.split(loops.steps, decisions["steps"], "step", "in_step")
        schedule.reorder("step", "in_step", loops.sum_rows, "sum_vector", "sum_lane")
        schedule.vectorize("lane", "zero_lane", "sum_lane")
        schedule.unroll("in_row", "vector", loops.zero_rows, "zero_vector")
        schedule.unroll(loops.sum_rows, "sum_vector", "in_step")
        if product.columns > panel:
            schedule.prefetch(product.w.name, "panel", "step")
        schedule.parallel(schedule.fuse("panel", "row", "tile"))


TEMPLATE = DenseProduct()
