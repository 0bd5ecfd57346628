"""The matrix products of NVIDIA's tensor cores, other warp-wide instructions, and the architectures
that have them.

The positions of elements are those in the PTX ISA, section "Matrix multiply-accumulate operation
using mma instruction": lane `l` of a warp belongs to group `l // 4`, which is a row of `a` and `c`
and a column of `b`. A product in this module combines two mma instructions for adjacent columns, so
that one `ldmatrix` loads a whole factor.
"""

from __future__ import annotations

from farrier.errors import CompilerError
from farrier.intrinsics import copies, exchanges, fetches, warpgroups
from farrier.intrinsics.fragments import FragmentProduct, declared
from farrier.ir.expr import UnaryOp
from farrier.ir.loop import Function, Intrinsic
from farrier.ir.statements import walk_stmts
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.targets.cuda import wgmma

# The features of each architecture, from the PTX ISA: mma, ldmatrix, shfl.sync, cp.async, wgmma.
_TURING = frozenset({"mma_f16_k8", "shfl_sync"})
_AMPERE = _TURING | {"mma_f16", "mma_bf16", "mma_tf32", "mma_i8", "cp_async"}
FEATURES = {
    "sm_75": _TURING,
    "sm_80": _AMPERE,
    "sm_86": _AMPERE,
    "sm_89": _AMPERE,
    "sm_90": _AMPERE,
    "sm_90a": _AMPERE | {wgmma.FEATURE, wgmma.FETCH},
    "sm_100": _AMPERE,
    "sm_120": _AMPERE,
}
_ROWS = _COLUMNS = 16
_MOST_STAGES = 4  # More stages would take shared memory from other blocks.


def _layouts(depth: int, each: int) -> tuple[Layout, Layout, Layout]:
    """Return the layouts of the fragments `a`, `b` and `c`. Each word of `a` and `b` holds `each`
    neighbours along k."""
    halves = depth // (4 * each)
    own, part = PhysicalDim(0, 1, 8), PhysicalDim(1, each, 4)
    of_a = [own, part, *([PhysicalDim(1, 4 * each)] if halves > 1 else []), PhysicalDim(0, 8)]
    of_b = [PhysicalDim(1, 1, 8), PhysicalDim(0, each, 4), PhysicalDim(1, 8)]
    of_b += [PhysicalDim(0, 4 * each)] if halves > 1 else []
    a = Layout((*of_a, PhysicalDim(1, 1, each)))
    b = Layout((*of_b, PhysicalDim(0, 1, each)))
    pairs = PhysicalDim(1, 2, 4), PhysicalDim(1, 8), PhysicalDim(0, 8), PhysicalDim(1, 1, 2)
    return a, b, Layout((own, *pairs))


def _product(
    name: str,
    left: DType,
    right: DType,
    total: DType,
    depth: int,
    feature: str,
    rounding: UnaryOp | None = None,
) -> FragmentProduct:
    layouts = _layouts(depth, 4 // left.nbytes)
    # `ldmatrix` transposes elements of two bytes.
    across = left.nbytes == 2
    shape = _ROWS, _COLUMNS, depth
    stages = 1 if feature in _TURING else _MOST_STAGES
    return FragmentProduct(
        name, left, right, total, *shape, *layouts, across, stages, feature, rounding
    )


PRODUCTS = (
    _product("mma_f16", DType.F16, DType.F16, DType.F32, 16, "mma_f16"),
    _product("mma_f16_k8", DType.F16, DType.F16, DType.F32, 8, "mma_f16_k8"),
    _product("mma_bf16", DType.BF16, DType.BF16, DType.F32, 16, "mma_bf16"),
    _product("mma_tf32", DType.F32, DType.F32, DType.F32, 8, "mma_tf32", UnaryOp.ROUND_TF32),
    *(
        _product(f"mma_{left}_{right}", left, right, DType.I32, 32, "mma_i8")
        for left in (DType.I8, DType.U8)
        for right in (DType.I8, DType.U8)
    ),
)
# `cp.async` copies 16 bytes, bypassing the L1 cache; with a source size of 0 it writes zeros.
COPIED = (DType.F16, DType.BF16, DType.F32, DType.I8, DType.U8)
COPY_BYTES = 16
# `shfl.sync.bfly` exchanges words.
EXCHANGED = (DType.F32, DType.I32, DType.U32)
INTRINSICS = (
    declared(PRODUCTS)
    + warpgroups.declared(wgmma.PRODUCTS)
    + fetches.declared(COPIED, wgmma.FETCHED_ROWS, warpgroups.ROW_BYTES, wgmma.FETCH)
    + copies.declared(COPIED, COPY_BYTES, "cp_async")
    + exchanges.declared(EXCHANGED, "shfl_sync")
)
_FEATURE = {intrinsic.name: feature for intrinsic in INTRINSICS for feature in intrinsic.features}


def products_of(cpu: str) -> tuple[FragmentProduct, ...]:
    """Return the fragment products that an architecture supports. Of each kind, the product that
    sums the most terms comes first."""
    return tuple(product for product in PRODUCTS if product.feature in FEATURES[cpu])


def warpgroup_products_of(cpu: str) -> tuple[warpgroups.WarpgroupProduct, ...]:
    """Return the products of warpgroups that an architecture supports."""
    return wgmma.PRODUCTS if wgmma.FEATURE in FEATURES[cpu] else ()


def require_features(function: Function, cpu: str) -> None:
    """Raise CompilerError if a kernel uses an instruction that the architecture does not have, for
    which LLVM would abort the process."""
    for stmt in walk_stmts(function.body):
        if isinstance(stmt, Intrinsic) and _FEATURE.get(stmt.name) not in FEATURES[cpu]:
            message = f"kernel {function.name} has the intrinsic {stmt.name}, which {cpu} lacks"
            having = ", ".join(
                name for name, has in FEATURES.items() if _FEATURE.get(stmt.name) in has
            )
            raise CompilerError(message, hint=f"these have it: {having or 'none'}")
