"""The time limit of Farrier's own reference, which runs a model's operators in float64.

A job step that hangs is killed from outside (`farrier_worker/steps.py`); the reference ends itself
before that, so that another reference can decide if there is one. The limit is some minutes, and
more for a model of many operations. A loop's body counts once, since values may decide its trip
count: a loop that needs more than the fixed time yields no result.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping

from farrier.errors import UsageError
from farrier.ir.dim import Extent, typical
from farrier.ir.graph import Graph, Node, Value
from farrier.ops import Product, product_of
from farrier.ops.time_limit import OutOfTimeError, time_limit
from farrier.packaging.limits import MOST_TIMES, REFERENCE_S, VARIABLE

# The speed of numpy in float64 on one slow core: a tenth of that of the elementwise operators and
# the products of matrices on the machine of docs/performance.md.
_ELEMENTS_A_SECOND = 2e7
_PRODUCTS_A_SECOND = 2e8
_WHOLE_SHARE = 0.5  # The share of the time left for inputs that may be meaningless to the model.


def reference_s(environ: Mapping[str, str]) -> float:
    """Return the limit in seconds that the environment sets. Raises UsageError if it cannot be
    parsed."""
    text = environ.get(VARIABLE) or str(REFERENCE_S)
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if 0 < seconds < math.inf:
            return seconds
    raise UsageError(f"{VARIABLE} is {text!r}", hint=f"{VARIABLE}={REFERENCE_S} is the default")


class ReferenceTime:
    """The seconds that the reference may take for one model, all its runs together. `is_over` is
    set if a run was out of time."""

    def __init__(self, graph: Graph, reference_s: float) -> None:
        self.total_s = min(reference_s + estimated_s(graph), MOST_TIMES * reference_s)
        self.is_over = False
        self._left_s = self.total_s

    @contextlib.contextmanager
    def spent(self, *, is_whole: bool = False) -> Iterator[None]:
        """Charge the time of the `with` block. Raises OutOfTimeError if there is none left.

        Inputs drawn from the full range of their types (`is_whole`) may be sizes that request an
        unreasonable amount of work. They get only a fraction of the time, so that the rest remains
        for other inputs.
        """
        begin = time.monotonic()
        try:
            with time_limit(self._left_s * (_WHOLE_SHARE if is_whole else 1.0)):
                yield
        except OutOfTimeError:
            self.is_over = True
            raise
        finally:
            self._left_s = max(0.0, self._left_s - (time.monotonic() - begin))

    @property
    def complaint(self) -> str:
        """Return the message for the user when the time is over."""
        seconds = round(self.total_s, 1)
        return (
            f"the step 'reference' did not end in the {seconds:g} s that it may take: "
            "Farrier's own operators in float64 have no answer to compare with"
        )

    @property
    def hint(self) -> str:
        return f"raise {VARIABLE}, or leave the comparison out with --no-verify"


def estimated_s(graph: Graph) -> float:
    """Return the estimated seconds of one run of a graph in numpy, with each region counted
    once."""
    return sum(map(_node_s, graph.nodes))


def _node_s(node: Node) -> float:
    if node.regions:
        return sum(map(estimated_s, node.regions))
    elements = sum(_elements(value) for value in (*node.inputs, *node.outputs) if value is not None)
    return elements / _ELEMENTS_A_SECOND + _products(node) / _PRODUCTS_A_SECOND


def _products(node: Node) -> float:
    """Return the number of products that a contraction computes, as far as it follows from the
    shapes of the operands."""
    if len(node.inputs) < 2 or node.inputs[0] is None or node.inputs[1] is None:
        return 0.0
    first, second = node.inputs[0].type.shape, node.inputs[1].type.shape
    summed = 0.0
    product = product_of(node)
    if product is Product.MATRIX and first:
        summed = _extent(first[-1])
    elif product in (Product.CONVOLUTION, Product.TRANSPOSED_CONVOLUTION):
        summed = math.prod(map(_extent, second[1:]))
    return _elements(node.outputs[0]) * summed


def _elements(value: Value) -> float:
    return math.prod(map(_extent, value.type.shape))


def _extent(extent: Extent) -> int:
    return extent if isinstance(extent, int) else typical(extent)
