"""Whether two functions compute the same, by running both."""

from __future__ import annotations

import numpy as np

from farrier.ir.loop import Function
from farrier.ir.run_loops import run_loops
from tests.intrinsics.written_out import written_out
from tests.ir.bind import bind


def assert_equal_results(before: Function, after: Function) -> None:
    """Both functions, given the same arrays, leave the same in every parameter; where they have
    dims, at the least, the typical and the greatest. Sums may be added up in another order."""
    for sizes in zip(*((d.low, d.typical, d.high) for d in before.dims), strict=True):
        values = dict(zip(before.dims, sizes, strict=True))
        _assert_equal(bind(before, values), bind(after, values))
    if not before.dims:
        _assert_equal(before, after)


def _assert_equal(before: Function, after: Function) -> None:
    rng = np.random.default_rng(0)
    # Small integers are exact in every dtype, and so are sums of their products.
    given = {b.name: rng.integers(-4, 5, b.shape).astype(b.dtype.numpy) for b in before.params}
    expected = run_loops(written_out(before), {}, initial=given)
    found = run_loops(written_out(after), {}, initial=given)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(
            found[name].astype(float), array.astype(float), 1e-6, 1e-6, err_msg=name
        )
