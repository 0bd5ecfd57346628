"""A rule that rewrites transposed convolutions with overlapping windows as convolutions, one for
each phase of the output (each remainder of the output position modulo the stride).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.dim import Extent, number
from farrier.ir.graph import Constant, Node, Value, attributes
from farrier.ops import Product, product_of
from farrier.ops.operator import extents_array
from farrier.passes.rewriting import Rewriter, derived
from farrier.passes.rules.rule import Replacement

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial axis of a transposed convolution, and how the points of a phase are computed.

    Without pads, the output is y[t] = Σ w[k] · x[(t − k) / stride], over the taps k for which the
    division is exact. For t = stride · q + phase, these are the taps k = phase + stride · j. A
    phase is therefore y[q] = Σ w[phase + stride · j] · x[q − j], which is a convolution of stride 1
    by the phase's taps in reverse order. All phases are computed for `points` values of q, starting
    with `first`.
    """

    kernel: int
    stride: int
    dilation: int
    first: int
    points: Extent
    after: int  # The zeros that these points read behind the last element of x.
    before_cut: int  # The points of y, from phase 0 of q = first on, before the first one kept.

    @classmethod
    def of(
        cls, kernel: int, stride: int, dilation: int, pads: tuple[int, int], extents: Sequence[Any]
    ) -> _Axis | None:
        """Return the description of one spatial axis, which has extents[0] input elements and
        extents[1] output elements. Return None if some phase of the output reads no taps, or if the
        taps of a phase are not evenly spaced."""
        if stride > kernel or (stride > 1 and dilation > 1):
            return None
        x, y = extents
        fewest = kernel // stride  # The taps of the last phase.
        # A convolution cannot begin beyond the first element of x by more than its own window.
        first = min(pads[0] // stride, dilation * (fewest - 1))
        # The result y ends `beyond` points after stride · (x − 1), the first point of the last
        # element's taps.
        beyond = y + pads[0] - stride * (x - 1)
        if not isinstance(beyond, int):
            return None
        after = max(0, -(-beyond // stride) - 1)
        cut = pads[0] - stride * first
        return cls(kernel, stride, dilation, first, x + after - first, after, cut)

    def taps(self, phase: int) -> range:
        """Return the indices of the taps of a phase in reverse order, as its convolution applies
        them."""
        return range(phase, self.kernel, self.stride)[::-1]

    def pads(self, taps: int) -> tuple[int, int]:
        """Return the number of zeros before and after x for a convolution with `taps` taps."""
        return self.dilation * (taps - 1) - self.first, self.after


def transposed_convolution_of_phases(node: Node, rewriter: Rewriter) -> Replacement | None:
    """A ConvTranspose whose windows overlap → convolutions, followed by PhasesToSpace, which
    interleaves the phases of their results. There is one convolution for all phases that read the
    same number of taps, with a channel for each of these phases.

    A single convolution suffices if the stride divides the kernel. The convolutions compute exactly
    the products of the transposed convolution, so an infinity does not affect other elements.
    """
    is_transposed = product_of(node) is Product.TRANSPOSED_CONVOLUTION
    if not is_transposed or node.attr("accumulator", None) is not None:
        return None
    x, w, bias = (*node.inputs, None)[:3]
    if x is None or w is None or {"auto_pad", "output_shape"} & dict(node.attrs).keys():
        return None
    weights, offsets, axes = rewriter.constant_of(w), rewriter.data(bias), _axes(node, x, w)
    if weights is None or axes is None or (bias is not None and offsets is None):
        return None
    return _Phases(node, rewriter, x, weights, offsets, axes).nodes()


def _axes(node: Node, x: Value, w: Value) -> tuple[_Axis, ...] | None:
    """Return the spatial axes of a ConvTranspose; None if an axis cannot be divided into phases or
    the node has a faster form. If windows do not overlap, each point reads one tap, and schedules
    compute the node directly."""
    rank, y = x.type.rank - 2, node.outputs[0]
    kernel = tuple(map(number, w.type.shape[2:]))
    strides = tuple(node.attr("strides", (1,) * rank))
    pads = tuple(node.attr("pads", (0,) * (2 * rank)))
    dilations = tuple(node.attr("dilations", (1,) * rank))
    if kernel == strides and not any(pads):
        return None
    axes = [
        _Axis.of(
            kernel[axis],
            strides[axis],
            dilations[axis],
            (pads[axis], pads[rank + axis]),
            (x.type.shape[2 + axis], y.type.shape[2 + axis]),
        )
        for axis in range(rank)
    ]
    return tuple(axis for axis in axes if axis is not None) if all(axes) else None


@dataclasses.dataclass(frozen=True)
class _Phases:
    """The builder of the nodes that replace one ConvTranspose."""

    node: Node
    rewriter: Rewriter
    x: Value
    weights: Constant  # [ic, oc/group, kernel…]
    bias: Array | None
    axes: tuple[_Axis, ...]

    def nodes(self) -> tuple[Node, ...]:
        """Return the convolutions, a Concat of them, PhasesToSpace, and a Slice, omitting any that
        is not needed. The last node computes the output of the ConvTranspose."""
        nodes = [self._convolution(taps, phases) for taps, phases in self._parts()]
        if len(nodes) > 1:
            nodes.append(self._concat([node.outputs[0] for node in nodes]))
        if any(axis.stride > 1 for axis in self.axes):
            nodes.append(self._placed(nodes[-1].outputs[0]))
        if nodes[-1].outputs[0].type.shape != self._y.type.shape:
            nodes.append(self._cut(nodes[-1].outputs[0]))
        nodes[-1] = dataclasses.replace(nodes[-1], outputs=self.node.outputs)
        return tuple(nodes)

    @property
    def _y(self) -> Value:
        return self.node.outputs[0]

    @property
    def _group(self) -> int:
        return int(self.node.attr("group", 1))

    @property
    def _outputs(self) -> int:
        """The number of output channels of the transposed convolution."""
        return number(self.weights.value.type.shape[1]) * self._group

    def _parts(self) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Yield, for each convolution, its number of taps per axis and the phases that it computes.
        In a grouped convolution that is one phase, because the channels of several would not be
        contiguous."""
        phases = itertools.product(*(range(axis.stride) for axis in self.axes))
        for taps, members in itertools.groupby(phases, self._taps_of):
            together = list(members)
            yield from (
                [(taps, [phase]) for phase in together] if self._group > 1 else [(taps, together)]
            )

    def _taps_of(self, phase: tuple[int, ...]) -> tuple[int, ...]:
        pairs = zip(self.axes, phase, strict=True)
        return tuple(len(axis.taps(at)) for axis, at in pairs)

    def _convolution(self, taps: tuple[int, ...], phases: list[tuple[int, ...]]) -> Node:
        """Return the convolution that computes the phases which read `taps` taps along each
        axis."""
        channels = len(phases) * self._outputs
        operands = [self.x, self._weights_of(taps, phases)]
        if self.bias is not None:
            repeated = np.tile(self.bias, len(phases))
            operands.append(self.rewriter.constant(repeated, f"{self._y.name}_bias"))
        pads = [axis.pads(count) for axis, count in zip(self.axes, taps, strict=True)]
        attrs = attributes(
            dilations=tuple(axis.dilation for axis in self.axes),
            group=self._group,
            kernel_shape=taps,
            pads=(*(before for before, _ in pads), *(after for _, after in pads)),
            strides=(1,) * len(taps),
        )
        result = self._value("phase", channels, *(axis.points for axis in self.axes))
        return Node("Conv", tuple(operands), (result,), attrs, origin=self.node.origin)

    def _weights_of(self, taps: tuple[int, ...], phases: list[tuple[int, ...]]) -> Value:
        """Return the weights of one convolution, of shape [phases · oc, ic/group, taps…]."""
        type = self.weights.value.type
        inputs = number(type.shape[0]) // self._group
        shape = (len(phases) * self._outputs, inputs, *taps)
        places = [
            tuple(axis.taps(at) for axis, at in zip(self.axes, phase, strict=True))
            for phase in phases
        ]
        stacked = functools.partial(_stacked, places=places, group=self._group)
        key = f"taps {places} of a transposed convolution in {self._group} groups"
        content = derived(dataclasses.replace(type, shape=shape), (self.weights,), stacked, key)
        return self.rewriter.constant(content, f"{self.weights.value.name}_phases")

    def _concat(self, parts: Sequence[Value]) -> Node:
        channels = sum(number(part.type.shape[1]) for part in parts)
        joined = self._value("phases", channels, *parts[0].type.shape[2:])
        attrs = attributes(axis=1)
        return Node("Concat", tuple(parts), (joined,), attrs, origin=self.node.origin)

    def _placed(self, phases: Value) -> Node:
        extents = [axis.points * axis.stride for axis in self.axes]
        whole = self._value("whole", self._outputs, *extents)
        attrs = attributes(strides=tuple(axis.stride for axis in self.axes))
        return Node("PhasesToSpace", (phases,), (whole,), attrs, origin=self.node.origin)

    def _cut(self, whole: Value) -> Node:
        """Return the node that slices the points of y from the computed points."""
        starts = [axis.before_cut for axis in self.axes]
        ends = [
            start + extent for start, extent in zip(starts, self._y.type.shape[2:], strict=True)
        ]
        axes = range(2, 2 + len(starts))
        bounds = [
            self.rewriter.constant(extents_array(numbers), f"{self._y.name}_{name}")
            for name, numbers in (("starts", starts), ("ends", ends), ("axes", axes))
        ]
        return Node("Slice", (whole, *bounds), (self._y,), origin=self.node.origin)

    def _value(self, hint: str, channels: int, *extents: Extent) -> Value:
        type = self._y.type
        shape = (type.shape[0], channels, *extents)
        name = self.rewriter.fresh(f"{self._y.name}_{hint}")
        return Value(name, dataclasses.replace(type, shape=shape))


def _stacked(weights: Array, places: Sequence[Sequence[range]], group: int) -> Array:
    """Return the taps at `places` of the weights of a transposed convolution, [ic, oc/group,
    kernel…], as the weights of a convolution, [places · oc, ic/group, taps…]."""
    inputs, outputs, *kernel = weights.shape
    grouped = weights.reshape(group, inputs // group, outputs, *kernel).swapaxes(1, 2)
    whole = grouped.reshape(group * outputs, inputs // group, *kernel)
    parts = [whole[np.ix_(*map(range, whole.shape[:2]), *taps)] for taps in places]
    return np.concatenate(parts)
