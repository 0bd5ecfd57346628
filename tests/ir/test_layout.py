"""Layouts: where the elements of a tensor lie."""

from __future__ import annotations

from farrier.ir.types import Layout, PhysicalDim


def test_a_part_of_one_element_is_left_out():
    """A machine without vectors has such blocks and panels; the axis could have no halo."""
    halo = ((0, 0), (0, 0), (1, 1), (1, 1))
    layout = Layout.blocked(4, 1, 1, halo)
    assert layout == Layout(Layout.plain(4).dims, halo)
    assert layout.physical_shape((1, 3, 8, 8)) == (1, 3, 10, 10)
    assert Layout.blocked(2, 1, 1).is_plain
    panels = Layout((PhysicalDim(1), PhysicalDim(0), PhysicalDim(1, 1, 1)))
    assert panels.dims == (PhysicalDim(1), PhysicalDim(0))
    assert Layout.blocked(2, 1, 2).dims == (
        PhysicalDim(0),
        PhysicalDim(1, 2),
        PhysicalDim(1, 1, 2),
    )
