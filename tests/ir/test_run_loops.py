"""The interpreter's own shortcuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.run_loops import _cast
from farrier.ir.special import convert
from farrier.ir.types import DType

ANY = st.floats() | st.integers(-(2**63), 2**63 - 1) | st.booleans()


@pytest.mark.parametrize("dtype", DType)
@given(value=ANY)
def test_a_cast_is_that_of_arrays(dtype, value):
    with np.errstate(all="ignore"):
        actual, expected = _cast(dtype, value), convert(np.array(value), dtype).item()
    assert type(actual) is type(expected)
    assert np.array(actual).tobytes() == np.array(expected).tobytes()
