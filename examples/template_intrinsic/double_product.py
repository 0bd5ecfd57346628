"""x @ w in f64 on x86-64, by a multiply-add of vectors that Farrier itself has only in f32."""

from collections.abc import Sequence

from farrier.intrinsics import TensorIntrinsic
from farrier.intrinsics.declare import Writer
from farrier.ir.expr import Binary, BinaryOp, Buffer, Load, MemoryScope, Var
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.targets import Target
from farrier.templates import Decisions, Knob, Problem, Schedule, Template, knob


def multiply_add(lanes: int, feature: str) -> TensorIntrinsic:
    """c[l] = c[l] + a * b[l], rounded once: what it means as loops, and its code."""
    shapes = {"c": (lanes,), "a": (), "b": (lanes,)}
    c, a, b = (Buffer(name, DType.F64, shape) for name, shape in shapes.items())
    lane = (Var("l"),)
    total = Binary(BinaryOp.ADD, Load(c, lane), Binary(BinaryOp.MUL, Load(a, ()), Load(b, lane)))
    nest = For("l", lanes, LoopKind.SERIAL, Store(c, lane, total))

    def emit(writer: Writer, operands: Sequence[str]) -> str:
        total, factor, vector = ((f"<{lanes} x double>", operand) for operand in operands)
        return writer.call(f"llvm.fma.v{lanes}f64", total[0], factor, vector, total)

    name = f"fma_f64x{lanes}"
    return TensorIntrinsic(name, Function(name, (c, a, b), nest), frozenset({feature}), emit)


FMA_F64X4 = multiply_add(4, "fma")
FMA_F64X8 = multiply_add(8, "avx512f")


def best_of(target: Target) -> TensorIntrinsic | None:
    features = target.required_features
    return next(
        (intrinsic for intrinsic in (FMA_F64X8, FMA_F64X4) if intrinsic.features <= features), None
    )


class DoubleProduct(Template):
    name = "double_product"
    version = 1
    preferred = True  # No built-in rule tiles f64.

    def applies(self, problem: Problem) -> bool:
        product, fma = problem.product, best_of(problem.target)
        if product is None or fma is None or not product.has_constant_weights:
            return False
        return product.dtype is DType.F64 and product.columns % fma.lanes == 0

    def knobs(self, problem: Problem) -> Sequence[Knob]:
        product = problem.product
        vectors = product.columns // best_of(problem.target).lanes
        return (
            knob("vectors", [count for count in (2, 3, 1, 4) if vectors % count == 0]),
            knob("rows", [count for count in (6, 8, *range(1, 6)) if product.rows % count == 0]),
        )

    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        product, fma = problem.product, best_of(problem.target)
        panel = decisions["vectors"] * fma.lanes
        product.pack(schedule, panel)
        loops = product.loops(schedule)
        schedule.split(loops.columns, panel, "panel", "in_panel")
        schedule.split("in_panel", fma.lanes, "vector", "lane")
        schedule.split(loops.rows, decisions["rows"], "row", "in_row")
        schedule.reorder("panel", "row", "in_row", "vector", "lane")
        schedule.compute_at(loops.sums, "row")
        schedule.set_scope(loops.sums, MemoryScope.REGISTER)
        schedule.split(loops.zero_columns, fma.lanes, "zero_vector", "zero_lane")
        schedule.split(loops.sum_columns, fma.lanes, "sum_vector", "sum_lane")
        schedule.reorder(loops.steps, loops.sum_rows, "sum_vector", "sum_lane")
        schedule.tensorize("sum_lane", fma.name)
        schedule.vectorize("lane", "zero_lane")
        schedule.unroll("in_row", "vector", loops.zero_rows, "zero_vector")
        schedule.unroll(loops.sum_rows, "sum_vector")
        schedule.parallel(schedule.fuse("panel", "row", "tile"))


TEMPLATE = DoubleProduct()
