"""x @ w in f64 on x86-64, by a multiply-add of vectors that Farrier itself has only in f32."""

from collections.abc import Sequence

from farrier.intrinsics import TensorIntrinsic
from farrier.intrinsics.declare import Writer
from farrier.ir.expr import Binary, BinaryOp, Buffer, Load, MemoryScope, Reduce, ReduceOp, Var
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.tensor import Stage
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.targets import Target
from farrier.templates import Decisions, Knob, Problem, Schedule, Template, knob


def multiply_add(lanes: int, feature: str) -> TensorIntrinsic:
    """c[l] = c[l] + a * b[l], rounded once: what it means as loops, and its code as LLVM text."""
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
    return next((one for one in (FMA_F64X8, FMA_F64X4) if one.features <= features), None)


class DoubleProduct(Template):
    name = "double_product"
    version = 1
    preferred = True  # no built-in rule tiles f64

    def applies(self, problem: Problem) -> bool:
        fma = best_of(problem.target)
        match problem.program.stages:
            case [
                Stage(
                    axes=[m, n],
                    body=Reduce(ReduceOp.SUM, [k], Binary(BinaryOp.MUL, Load(x, a), Load(w, b))),
                )
            ]:
                row, column, step = (Var(axis.name) for axis in (m, n, k))
                is_product = a == (row, step) and b == (step, column)
                is_f64 = x.dtype is w.dtype is DType.F64 and w.scope is MemoryScope.CONSTANT
                is_known = is_product and is_f64 and not problem.program.dims
                return is_known and fma is not None and n.extent % fma.lanes == 0
        return False

    def knobs(self, problem: Problem) -> Sequence[Knob]:
        rows, columns = (axis.extent for axis in problem.program.stages[0].axes)
        vectors = columns // best_of(problem.target).lanes
        return (
            knob("vectors", [count for count in (2, 3, 1, 4) if vectors % count == 0]),
            knob("rows", [count for count in (6, 8, *range(1, 6)) if rows % count == 0]),
        )

    def schedule(self, problem: Problem, schedule: Schedule, decisions: Decisions) -> None:
        product, fma = problem.program.stages[0], best_of(problem.target)
        (m, n), (k,), output = product.axes, product.body.axes, product.buffer.name
        panel = decisions["vectors"] * fma.lanes
        packed = Layout((PhysicalDim(1, panel), PhysicalDim(0), PhysicalDim(1, 1, panel)))
        schedule.transform_layout(product.body.body.right.buffer.name, packed)
        schedule.cache_write(output, "sums")
        schedule.split(f"{output}_{n.name}", panel, "panel", "in_panel")
        schedule.split("in_panel", fma.lanes, "vector", "lane")
        schedule.split(f"{output}_{m.name}", decisions["rows"], "row", "in_row")
        schedule.reorder("panel", "row", "in_row", "vector", "lane")
        schedule.compute_at("sums", "row")
        schedule.set_scope("sums", MemoryScope.REGISTER)
        schedule.split(f"sums_init_{n.name}", fma.lanes, "init_vector", "init_lane")
        schedule.split(f"sums_{n.name}", fma.lanes, "sum_vector", "sum_lane")
        schedule.reorder(f"sums_{k.name}", f"sums_{m.name}", "sum_vector", "sum_lane")
        schedule.tensorize("sum_lane", fma.name)
        schedule.vectorize("lane")
        schedule.vectorize("init_lane")
        for loop in ("in_row", "vector", f"sums_init_{m.name}", "init_vector"):
            schedule.unroll(loop)
        for loop in (f"sums_{m.name}", "sum_vector"):
            schedule.unroll(loop)
        schedule.parallel(schedule.fuse("panel", "row", "tile"))


TEMPLATE = DoubleProduct()
