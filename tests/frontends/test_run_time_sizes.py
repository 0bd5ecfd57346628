"""Sizes that values decide, in programs of a frontend that knows no ONNX (`traced`)."""

import subprocess
import sys

import numpy as np
import pytest

from tests.frontends import traced


def _at(count, extent, scale):
    """Return the coordinates that `count` outputs read along an axis, with centers aligned."""
    return np.clip((np.arange(count) + 0.5) / scale - 0.5, 0, extent - 1)


def _nearest(image, scale):
    rows, columns = (
        np.ceil(_at(int(extent * scale), extent, scale) - 0.5).astype(int)
        for extent in image.shape[2:]
    )
    return image[:, :, rows][..., columns]


def _linear(image, scale):
    for axis in (2, 3):
        extent = image.shape[axis]
        at = _at(int(extent * scale), extent, scale)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        high = np.minimum(low + 1, extent - 1)
        image = image.take(low, axis) * (1 - share) + image.take(high, axis) * share
    return image.astype(np.float32)


def _larger(image, k):
    rows, columns = (
        np.arange(count) * extent // count
        for count, extent in zip((k + 1, 2 * k), image.shape[2:], strict=True)
    )
    return image[:, :, rows][..., columns]


EXPECTED = {
    "top": lambda x, k, **_: x[: len(x) // 2],
    "behind": lambda x, k, **_: x[k:],
    "odd": lambda x, k, **_: x[:, 1 : k + 1 : 2],
    "every": lambda x, k, **_: x[:: k + 1],
    "pairs": lambda x, k, **_: x.reshape(len(x), 2, 3),
    "halves": lambda x, k, **_: x.reshape(len(x), k, -1),
    "rows": lambda x, k, **_: np.broadcast_to(np.arange(6, dtype=np.float32), (k, 6)),
    "numbers": lambda x, k, **_: np.arange(3, 2 * k, 2),
    "larger": lambda x, k, image, **_: _larger(image, k),
    "nearest": lambda x, k, image, scale, **_: _nearest(image, scale),
    "linear": lambda x, k, image, scale, **_: _linear(image, scale),
    "padded": lambda x, k, **_: np.pad(x, ((k, 1), (0, k + 1))),
    "sevens": lambda x, k, **_: np.full((len(x), k), 7, np.float32),
    "repeated": lambda x, k, **_: np.tile(x, (1, k)),
    "hot": lambda x, k, **_: np.eye(max(2 * k, len(x)), dtype=np.float32)[: len(x), : 2 * k],
    "lower": lambda x, k, **_: np.tril(x, k),
    "sums": lambda x, k, dim, **_: np.cumsum(x, dim),
    "largest": lambda x, k, **_: -np.sort(-x, axis=0)[:k],
    "swapped": lambda x, k, **_: np.concatenate([x[k + 3 :], x[:k]]),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Compile and run the program in a process that must not import onnx."""
    path = tmp_path_factory.mktemp("traced") / "results.npz"
    command = [sys.executable, "-m", "tests.frontends.traced", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(path)


@pytest.mark.parametrize("output", traced.OUTPUTS)
def test_sizes_of_values_are_those_of_numpy(results, output):
    for place, case in enumerate(traced.CASES):
        operands = {**traced.feeds(case), "k": case["k"], "scale": case["scale"]}
        expected = EXPECTED[output](**operands)
        actual = results[f"{place}.{output}"]
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6, err_msg=str(case))
