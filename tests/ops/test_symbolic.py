"""The rules of operators for sizes, against their references on the values of the sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.frontends.builder.symbolic import fold, ints
from farrier.ir.dim import Undecided, dim, evaluate
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, lookup, names
from farrier.ops.operator import extents_array
from farrier.ops.traits import Trait

SYMBOLS = {"h": dim("h", 1, 60, 7), "w": dim("w", 1, 60, 5)}
H, W = SYMBOLS.values()
SIZES = st.sampled_from([H, W, H + W, 2 * H, H * W, H // 2, -W, 0, 1, 3])
OPERANDS = {"Neg": 1, "Abs": 1, "Cast": 1, "Where": 3}
OPERATORS = sorted(name for name in names() if lookup(name).symbolic is not None)
MOVES = {
    "Concat": ([H, 1], [W], {"axis": 0}),
    "DepthToSpace": ([H, W, 3, H + W], {"blocksize": 2}),
    "Gather": ([H, W, 3], np.array([2, 0])),
    "GatherElements": ([H, W, 3], np.array([1, 1])),
    "Slice": ([H, W, 3], np.array([1]), np.array([3])),
    "Tile": ([H, W], np.array([2])),
}


def at(array, sizes):
    """Return an array of sizes as numbers."""
    numbers = [evaluate(extent, sizes) for extent in array.reshape(-1).tolist()]
    return np.array(numbers, np.int64).reshape(array.shape)


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in ("Floor", "Ceil")])
@given(data=st.data())
def test_a_rule_returns_what_the_reference_does(name, data):
    operator = lookup(name)
    count = OPERANDS.get(name, 2 if operator.kind is Kind.ELEMENTWISE else 1)
    pairs = st.tuples(SIZES, SIZES)
    arrays = [ints(data.draw(pairs, label="sizes")) for _ in range(count)]
    if operator.has(Trait.DIVIDES):
        arrays[1] = ints(data.draw(st.sampled_from([(H, W), (3, H + W), (2, 2 * H)])))
    if name == "Where":
        arrays[0] = np.array([True, False])
    attrs = {"to": "i64"} if name == "Cast" else {"keepdims": 0, "fmod": data.draw(st.booleans())}
    is_bool = name.startswith(("Equal", "Less", "Greater"))
    shape = (2,) if operator.kind is Kind.ELEMENTWISE else ()
    kind = TensorType(DType.BOOL if is_bool else DType.I64, shape)
    sizes = {symbol: data.draw(st.integers(1, 60), label=symbol) for symbol in SYMBOLS}
    try:
        results = fold(operator, arrays, attrs, [kind])
    except Undecided:
        return
    numbers = [array if array.dtype == bool else at(array, sizes) for array in arrays]
    (expected,) = operator.reference(numbers, attrs)
    assert results is not None
    np.testing.assert_array_equal(at(results[0], sizes), expected)


@pytest.mark.parametrize("name", MOVES)
def test_an_operator_that_moves_elements_moves_sizes(name):
    operator, (first, *others) = lookup(name), MOVES[name]
    attrs = others.pop() if isinstance(others[-1], dict) else {}
    arrays = [extents_array(a) if isinstance(a, list) else a for a in (first, *others)]
    if name == "DepthToSpace":
        arrays[0] = arrays[0].reshape(1, 4, 1, 1)
    sizes = {"h": 11, "w": 4}
    numbers = [at(array, sizes) for array in arrays]
    (expected,) = operator.reference(numbers, attrs)
    results = fold(operator, arrays, attrs, [TensorType(DType.I64, expected.shape)])
    assert results is not None
    assert results[0].dtype == object
    np.testing.assert_array_equal(at(results[0], sizes), expected)
