"""The matrix products of warpgroups, `wgmma`, which sm_90a alone has."""

from __future__ import annotations

from farrier.intrinsics.warpgroups import WarpgroupProduct
from farrier.ir.types import DType

FEATURE = "wgmma"
FETCH = "tma"  # Copies of whole tiles to shared memory.
FETCHED_ROWS = (32, 64, 128, 256)  # A tensor map has at most 256 in a tile.
_COLUMNS = (32, 64, 128, 256)
_STORED = 64  # Columns whose sums are written to shared memory at once.


def _products(name: str, left: DType, right: DType, total: DType) -> list[WarpgroupProduct]:
    depth = 32 // left.nbytes
    # Factors of two bytes may have either order in memory (PTX ISA, wgmma.mma_async).
    across = left.nbytes == 2
    return [
        WarpgroupProduct(
            *(f"wgmma_{name}_{columns}", left, right, total, columns, depth, across),
            *(min(columns, _STORED), FEATURE),
        )
        for columns in _COLUMNS
    ]


PRODUCTS = (
    *_products("f16", DType.F16, DType.F16, DType.F32),
    *_products("bf16", DType.BF16, DType.BF16, DType.F32),
    *(
        product
        for left in (DType.I8, DType.U8)
        for right in (DType.I8, DType.U8)
        for product in _products(f"{left}_{right}", left, right, DType.I32)
    ),
)
