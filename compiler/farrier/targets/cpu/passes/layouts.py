"""The layouts in which nodes run on channel-blocked images, and the zero borders (halos) that they
read, for `assign-layouts`."""

from __future__ import annotations

import math

from farrier.ir.dim import Extent, is_less, typical
from farrier.ir.graph import Node
from farrier.ops import lookup
from farrier.ops.layout import IMAGE_RANKS, Form, Images
from farrier.ops.traits import Trait
from farrier.ops.window import Window

# A halo that enlarges an image by more than this factor costs more than bounds checks, as for a 3×3
# kernel with dilation 12.
_MAX_GROWTH = 4


def form_of(node: Node, images: Images) -> Form:
    """Return the kind of layouts, plain or blocked, with which `node` runs fastest. `images` are
    the images that are in the blocked layout so far."""
    rule = lookup(node.op).layout
    if rule is None or not node.inputs or node.inputs[0] is None:
        return Form.PLAIN
    return rule(node, images)


def halo_read(node: Node) -> int:
    """Return the width of the halo (border of zeros) that an image needs so that `node` can read
    its padding without bounds checks. It is 0 if the operator has no padding, too much padding, or
    padding other than zeros.

    The number is the same on all sides, even if one side needs fewer, so that one kernel can write
    images for different readers.
    """
    x = node.inputs[0] if node.inputs else None
    if x is None or x.type.rank not in IMAGE_RANKS:
        return 0
    operator = lookup(node.op)
    if operator.window is None or not operator.has(Trait.ZERO_PADDED):
        return 0
    window, spatial = operator.window(node), x.type.shape[2:]
    outputs = node.outputs[0].type.shape[2:]
    halo = max(_reach(window, axis, spatial[axis], outputs[axis]) for axis in range(len(spatial)))
    around = math.prod(typical(extent) + 2 * halo for extent in spatial)
    return halo if around <= _MAX_GROWTH * math.prod(map(typical, spatial)) else 0


def _reach(window: Window, axis: int, extent: Extent, outputs: Extent) -> int:
    """Return the largest number of elements by which the window extends beyond either end of an
    axis, for all sizes of the image."""
    before = window.before[axis]
    last = (outputs - 1) * window.strides[axis] + window.reach(axis) - 1 - before
    for reach in range(window.reach(axis)):
        if is_less(before, reach + 1) and is_less(last - extent, reach):
            return reach
    return 0
