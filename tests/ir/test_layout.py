"""Layouts: where the elements of a tensor lie."""

from __future__ import annotations

from farrier.ir.types import Layout, PhysicalDim


def test_a_block_of_one_element_splits_nothing():
    """Machines without vectors have such blocks; the axis would otherwise have a part of extent 1,
    and no halo."""
    halo = ((0, 0), (0, 0), (1, 1), (1, 1))
    layout = Layout.blocked(4, 1, 1, halo)
    assert layout == Layout(Layout.plain(4).dims, halo)
    assert layout.physical_shape((1, 3, 8, 8)) == (1, 3, 10, 10)
    assert Layout.blocked(2, 1, 1).is_plain
    assert Layout.blocked(2, 1, 2).dims == (
        PhysicalDim(0),
        PhysicalDim(1, 2),
        PhysicalDim(1, 1, 2),
    )
