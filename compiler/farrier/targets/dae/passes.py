"""The graph passes for an accelerator: products of integers that the matrix unit supports, channel
blocks, and padding as part of the kernel that reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from farrier.errors import CompilerError
from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType
from farrier.ops import Product, Trait, lookup, product_of
from farrier.ops.pad import PAD
from farrier.ops.window import window_of
from farrier.passes.fuse import Home, fuse
from farrier.passes.passes import Pass
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes import PASSES as OF_CPUS
from farrier.targets.dae.fill_channels import fill_channels
from farrier.targets.dae.unit import UnitTarget

_BYTES = (DType.I8, DType.U8)

ORDER = (
    "integer-products",
    "fold-constants",
    "eliminate-common-subexpressions",
    "match-signedness",
    "simplify",
    "eliminate-common-subexpressions",
    "fold-batch-norm",
    "recast-convolutions",
    "eliminate-dead-code",
    "widen-floats",
    "fold-constants",
    "fill-channels",
    "write-paddings",
    "assign-layouts",
    "split-resizes",
    "eliminate-dead-code",
    "transpose-in-place",
    "fuse",
)


def _for_unit(name: str) -> Pass:
    """Return a pass that runs the CPU pass `name` with the matrix unit as its target."""

    def run(graph: Graph, settings: Settings) -> Graph:
        from farrier.targets.dae.backend import DaeTarget

        if not isinstance(settings.target, DaeTarget):
            raise CompilerError(f"{settings.target.cpu} is not an accelerator")
        unit = UnitTarget.of(settings.target.accelerator)
        return OF_CPUS[name](graph, dataclasses.replace(settings, target=unit))

    return run


def _fill_channels(graph: Graph, settings: Settings) -> Graph:
    from farrier.targets.dae.backend import DaeTarget

    assert isinstance(settings.target, DaeTarget)
    return fill_channels(graph, settings.target.accelerator.matrix.inner)


def write_paddings(graph: Graph, settings: Settings) -> Graph:
    """Insert a Pad node before a convolution that pads bytes. Otherwise the layout would reserve a
    zero border around the image in memory, which the accelerator's stores cannot write.

    before:
        @graph
        def g(x: i8[1, 2, 4, 4]):
            w: i8[1, 2, 1, 1] = constant([1, 2])
            y: i32[1, 1, 6, 6] = Conv(x, w, accumulator='i32', pads=(1, 1, 1, 1))
            return y

    after:
        @graph
        def g(x: i8[1, 2, 4, 4]):
            w: i8[1, 2, 1, 1] = constant([1, 2])
            x_pads: i64[8] = constant([0, 0, 1, 1, 0, 0, 1, 1])
            x_zero: i8[()] = constant(0)
            x_padded: i8[1, 2, 6, 6] = Pad(x, x_pads, x_zero)
            y: i32[1, 1, 6, 6] = Conv(x_padded, w, accumulator='i32', pads=(0, 0, 0, 0))
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        for each in _padded(node, rewriter):
            rewriter.emit(each)
    return rewriter.finish()


def _padded(node: Node, rewriter: Rewriter) -> tuple[Node, ...]:
    """Return the nodes that replace `node`: a Pad and the convolution without padding if `node` is
    a convolution that pads bytes, else `node` itself."""
    x = node.inputs[0] if node.inputs else None
    if x is None or product_of(node) is not Product.CONVOLUTION or x.type.dtype not in _BYTES:
        return (node,)
    weights = node.inputs[1]
    assert weights is not None
    window = window_of(dict(node.attrs), x.type.shape[2:], weights.type.static_shape[2:])
    pads = (0, 0, *window.before, 0, 0, *window.after)
    if not any(pads) or not all(isinstance(pad, int) for pad in pads):
        return (node,)
    rank = x.type.rank
    shape = tuple(n + pads[at] + pads[at + rank] for at, n in enumerate(x.type.shape))
    wide = Value(
        rewriter.fresh(f"{x.name}_padded"), dataclasses.replace(x.type, shape=shape, layout=None)
    )
    operands = (
        x,
        rewriter.constant(np.array(pads, np.int64), f"{x.name}_pads"),
        rewriter.constant(np.zeros((), x.type.dtype.numpy), f"{x.name}_zero"),
    )
    attrs = {name: value for name, value in node.attrs if name != "auto_pad"}
    attrs["pads"] = (0,) * 2 * window.rank
    conv = dataclasses.replace(node, inputs=(wide, *node.inputs[1:]), attrs=attributes(**attrs))
    return Node("Pad", operands, (wide,)), conv


def _fuse(graph: Graph, settings: Settings) -> Graph:
    """Fuse nodes to kernels. Pad nodes and DequantizeLinear nodes are fused with their readers as
    well: loads can add padding, and bytes need only a quarter of the transfers that floats need."""
    return fuse(graph, _joined)


def _joined(graph: Graph, home: Home) -> Mapping[int, Node]:
    readers = graph.consumers()
    returned = {value.name for value in graph.outputs}
    joined: dict[int, Node] = {}
    for node in graph.nodes:
        reading = readers.get(node.outputs[0].name, [])
        if len(reading) != 1 or node.outputs[0].name in returned:
            continue
        (reader,) = reading
        if lookup(node.op).has(Trait.DEQUANTIZES) or (
            PAD.matches(node) and _loads_pad(node, reader)
        ):
            joined[id(node)] = reader
    return joined


def _loads_pad(node: Node, reader: Node) -> bool:
    """Check whether the reader of a Pad is a convolution of an image in channel blocks, whose loads
    can pad."""
    product, layout = product_of(reader), node.outputs[0].type.layout
    is_blocked = layout is not None and not layout.is_plain
    return product is not None and product.is_convolution and is_blocked


PASSES: Mapping[str, Pass] = {
    "assign-layouts": _for_unit("assign-layouts"),
    "fill-channels": _fill_channels,
    "fuse": _fuse,
    "integer-products": _for_unit("integer-products"),
    "match-signedness": _for_unit("match-signedness"),
    "write-paddings": write_paddings,
}
