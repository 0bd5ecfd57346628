"""Nodes that add up: reductions, norms, products, windows."""

from __future__ import annotations

from typing import Any

import numpy as np
from draft import (
    ALL_FLOATS,
    CHANNELS,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Call,
    Draft,
    Refused,
    Tensor,
)

_MEANS = ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")


def _size(x: Tensor, axes: Any) -> int:
    return int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))


def softmax(d: Draft) -> Call:
    op = d.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax"))
    x = d.pick(ALL_FLOATS, least=1, op=op, exact=op == "Hardmax", most=50.0)
    magnitude = None if op == "LogSoftmax" else 1.0
    return Call(op, [x], attrs={"axis": d.axis(x)}, exact=op == "Hardmax", magnitude=magnitude)


def reduce(d: Draft) -> Call:
    op = d.choice(("ReduceSum", "ReduceMax", "ReduceMin", *_MEANS))
    is_exact = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
    types = (FLOAT, FLOAT, DOUBLE, *((INT32, INT64) if op[6:] in ("Sum", "Max", "Min") else ()))
    x = d.pick(types, least=1, op=op, most=30.0)
    axes = d.axes(x)
    if 0 in x.shape and op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceLogSumExp"):
        raise Refused("what there is none of has no maximum")
    magnitude = x.magnitude * max(_size(x, axes), 1)
    if op in ("ReduceSumSquare", "ReduceL2"):
        magnitude *= x.magnitude
    inputs = [x, np.array(axes, np.int64)]
    if d.rng.random() < 0.1:
        inputs, magnitude = [x], x.magnitude**2 * max(_size(x, range(x.rank)), 1)
    attrs = {"keepdims": d.between(0, 1)}
    return Call(op, inputs, attrs=attrs, exact=is_exact, magnitude=magnitude)


def product(d: Draft) -> Call:
    """ReduceProd, which overflows soon, and ReduceLogSum, which is of what may be negative."""
    op = d.choice(("ReduceProd", "ReduceLogSum"))
    x = d.pick((FLOAT,), least=1, exact=True, most=4.0)
    attrs = {"keepdims": d.between(0, 1)}
    return Call(op, [x, np.array(d.axes(x), np.int64)], attrs=attrs, magnitude=np.inf)


def arg(d: Draft) -> Call:
    op = d.choice(("ArgMax", "ArgMin"))
    x = d.pick((FLOAT, FLOAT, DOUBLE, INT32), least=1, op=op, exact=True)
    if 0 in x.shape:
        raise Refused("what there is none of has no maximum")
    attrs = {
        "axis": d.axis(x),
        "keepdims": d.between(0, 1),
        "select_last_index": d.between(0, 1),
    }
    return Call(op, [x], attrs=attrs, exact=True, magnitude=20.0)


def running(d: Draft) -> Call:
    x = d.pick((FLOAT, DOUBLE, INT32, INT64), least=1, most=30.0)
    axis = d.axis(x)
    attrs = {"exclusive": d.between(0, 1), "reverse": d.between(0, 1)}
    magnitude = x.magnitude * max(x.shape[axis], 1)
    return Call(
        "CumSum", [x, np.array(axis, np.int64)], attrs=attrs, exact=True, magnitude=magnitude
    )


def norm(d: Draft) -> Call:
    op = d.choice(
        (
            "LayerNormalization",
            "BatchNormalization",
            "BatchNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LpNormalization",
            "MeanVarianceNormalization",
            "LRN",
        )
    )
    attrs: dict[str, Any] = {} if op[0] in "M" or op[:2] in ("Lp", "LR") else {"epsilon": 0.01}
    if op in ("LayerNormalization", "LpNormalization"):
        x = d.pick((FLOAT,), least=1)
        attrs["axis"] = d.axis(x)
        if op == "LpNormalization":
            return Call(op, [x], attrs={**attrs, "p": d.choice((1, 2))}, magnitude=np.inf)
        shape = x.shape[attrs["axis"] :]
        bias = [d.array(shape)] if d.rng.random() < 0.7 else []
        return Call(op, [x, d.array(shape), *bias], attrs=attrs, magnitude=20.0)
    rank = 4 if op in ("LRN", "MeanVarianceNormalization") else d.choice((3, 4, 4, 4, 5))
    x = d.pick((FLOAT,), rank=rank)
    channels = (x.shape[1],)
    if op == "BatchNormalization":
        mean, variance = d.array(channels), np.abs(d.array(channels)) + np.float32(0.5)
        return Call(op, [x, d.array(channels), d.array(channels), mean, variance], attrs=attrs)
    if op == "InstanceNormalization":
        return Call(op, [x, d.array(channels), d.array(channels)], attrs=attrs, magnitude=20.0)
    if op == "GroupNormalization":
        groups = d.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
        extent = (groups,) if d.opset < 21 else channels
        attrs["num_groups"] = groups
        return Call(op, [x, d.array(extent), d.array(extent)], attrs=attrs, magnitude=20.0)
    if op == "LRN":
        return Call(op, [x], attrs={"size": d.choice((1, 3, 5))})
    return Call(op, [x], magnitude=np.inf)


def matmul(d: Draft) -> Call:
    a = d.pick((FLOAT, FLOAT, FLOAT, DOUBLE, INT32), least=1, op="MatMul", most=30.0)
    k, n = a.shape[-1], d.choice((1, 3, 8, 16, 17, 33))
    form = d.rng.random()
    inputs: list[Any]
    if form < 0.15:
        inputs = [a, d.other((k,), a.dtype)]
    elif form < 0.4 and a.rank > 2:
        inputs = [a, d.other((*d.broadcast_to(a.shape[:-2]), k, n), a.dtype)]
    elif form < 0.5 and a.rank >= 2:
        inputs = [d.other((a.shape[-2],), a.dtype), a]
    else:
        inputs = [a, d.other((k, n), a.dtype)]
    return Call("MatMul", inputs, exact=True, magnitude=a.magnitude * 4 * max(k, 1))


def attention(d: Draft) -> Call:
    """A product with the transposed operand, its softmax, and a product again."""
    x = d.pick((FLOAT,), least=2, most=8.0)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    (turned,) = d.add(Call("Transpose", [x], attrs={"perm": perm}, exact=True))
    (scores,) = d.add(Call("MatMul", [x, turned]))
    (scaled,) = d.add(Call("Mul", [scores, np.array(0.125, np.float32)]))
    (weights,) = d.add(Call("Softmax", [scaled], attrs={"axis": -1}, magnitude=1.0))
    return Call("MatMul", [weights, x], magnitude=x.magnitude)


def gemm(d: Draft) -> Call:
    a = d.pick((FLOAT, FLOAT, DOUBLE), rank=2, most=30.0)
    trans_a, trans_b, n = d.between(0, 1), d.between(0, 1), d.choice((1, 5, 16, 17))
    k, m = a.shape if trans_a else a.shape[::-1]
    c = [d.other(d.broadcast_to((m, n)), a.dtype)] if d.rng.random() < 0.7 else []
    b = d.other((n, k) if trans_b else (k, n), a.dtype)
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": d.choice((1.0, 0.5)), "beta": 2.0}
    return Call("Gemm", [a, b, *c], attrs=attrs, magnitude=a.magnitude * 4 * max(k, 1))


def einsum(d: Draft) -> Call:
    """Two operands of random labels, each of which may be summed over."""
    x = d.pick((FLOAT, FLOAT, DOUBLE), least=1, most=8.0)
    labels = "abcde"[: x.rank]
    second = "".join(d.rng.sample(labels, d.between(1, x.rank)))
    sizes = dict(zip(labels, x.shape, strict=True))
    if d.rng.random() < 0.7:
        second, sizes["n"] = f"{second}n", d.choice((1, 3, 8, 17))
    every = "".join(sizes)
    result = "".join(d.rng.sample(every, d.between(0, len(every))))
    if np.prod(list(sizes.values()), dtype=float) > 2e5:
        raise Refused("too long a sum")
    other = d.array([sizes[label] for label in second], x.dtype)
    summed = np.prod([max(sizes[label], 1) for label in every if label not in result])
    equation = f"{labels},{second}->{result}"
    magnitude = x.magnitude * 2 * float(summed)
    return Call("Einsum", [x, other], attrs={"equation": equation}, magnitude=magnitude)


def _windows(d: Draft, x: Tensor, *, half: bool = False) -> dict[str, Any]:
    """Kernel, strides, dilations and pads that leave an output."""
    kernel, strides, dilations, begin, end = [], [], [], [], []
    for extent in x.shape[2:]:
        if not extent:
            raise Refused("a window over nothing")
        k = d.choice((1, 1, 2, 3, 3, 3, 4, 5, 7))
        dil = d.choice((1, 1, 1, 2, 3))
        most = k - 1 if half else 3
        pads = [d.between(0, min(most, 3)) for _ in range(2)]
        if (k - 1) * dil + 1 > extent + sum(pads):
            k, dil = d.between(1, min(extent, 3)), 1
            pads = [min(p, k - 1) for p in pads]
        kernel.append(k)
        dilations.append(dil)
        strides.append(d.choice((1, 1, 1, 2, 2, 3)))
        begin.append(pads[0])
        end.append(pads[1])
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    # Engines disagree on pads below zero, which SAME means where a step passes over elements.
    if d.rng.random() < 0.2 and all(s <= k for s, k in zip(strides, kernel, strict=True)):
        return {**attrs, "dilations": [1] * len(kernel), "auto_pad": "SAME_UPPER"}
    return {**attrs, "pads": begin + end}


def conv(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4 if d.rng.random() < 0.8 else d.choice((3, 5)), most=50.0)
    attrs = _windows(d, x)
    channels = x.shape[1]
    groups = d.choice([g for g in (1, 1, 1, 2, 3, channels) if g and channels % g == 0])
    per = d.choice((1, 1, 2, 3)) if groups > 1 else d.choice(CHANNELS)
    weights = d.array((groups * per, channels // groups, *attrs["kernel_shape"]))
    bias = [d.array((groups * per,))] if d.rng.random() < 0.6 else []
    size = int(np.prod(weights.shape[1:]))
    attrs["group"] = groups
    return Call("Conv", [x, weights, *bias], attrs=attrs, magnitude=4 * x.magnitude * size)


def conv_transpose(d: Draft) -> Call:
    rank = d.choice((3, 4, 4, 5))
    x = d.pick((FLOAT,), rank=rank, most=50.0)
    channels = x.shape[1]
    groups = d.choice([g for g in (1, 1, 2, 3, channels) if g and channels % g == 0])
    kernel = [d.between(1, 4) for _ in range(rank - 2)]
    strides = [d.between(1, 3) for _ in range(rank - 2)]
    pads = [d.between(0, k - 1) for k in (*kernel, *kernel)]
    attrs = {"kernel_shape": kernel, "strides": strides, "group": groups, "pads": pads}
    if d.rng.random() < 0.3:
        attrs["output_padding"] = [d.between(0, stride - 1) for stride in strides]
    weights = d.array((channels, d.between(1, 5), *kernel))
    magnitude = 4 * x.magnitude * channels * int(np.prod(kernel))
    return Call("ConvTranspose", [x, weights], attrs=attrs, magnitude=magnitude)


def pool(d: Draft) -> Call:
    x = d.pick((FLOAT,), rank=4 if d.rng.random() < 0.8 else d.choice((3, 5)))
    op = d.choice(("MaxPool", "AveragePool", "LpPool"))
    attrs = {**_windows(d, x, half=True), "ceil_mode": d.between(0, 1)}
    # A last window that starts in the padding is dropped, but not by onnx's shape inference.
    ends = attrs.get("pads", [3] * len(x.shape[2:]))[-len(x.shape[2:]) :]
    steps = zip(ends, attrs["strides"], attrs["kernel_shape"], strict=True)
    if any(end + stride > kernel for end, stride, kernel in steps):
        attrs["ceil_mode"] = 0
    if op != "MaxPool" or attrs.get("auto_pad"):
        attrs["dilations"] = [1] * (x.rank - 2)
    if "pads" in attrs and any(_has_window_of_padding(x, attrs, a) for a in range(x.rank - 2)):
        raise Refused("a window of padding alone, of which engines return other values")
    if op == "LpPool":
        attrs["p"] = d.between(1, 3)
    if op == "AveragePool":
        attrs["count_include_pad"] = d.between(0, 1)
        if d.opset < 19:
            del attrs["dilations"]
    return Call(op, [x], attrs=attrs, exact=op == "MaxPool", magnitude=50 * x.magnitude)


def _has_window_of_padding(x: Tensor, attrs: dict[str, Any], axis: int) -> bool:
    """Check whether a window along an axis reads no element of the input."""
    extent, kernel = x.shape[2 + axis], attrs["kernel_shape"][axis]
    before, after = attrs["pads"][axis], attrs["pads"][axis + x.rank - 2]
    step = attrs.get("dilations", [1] * (x.rank - 2))[axis]
    last = extent + after - (kernel - 1) * step
    starts = range(-before, last + attrs["strides"][axis], attrs["strides"][axis])
    return any(
        not any(0 <= start + tap * step < extent for tap in range(kernel)) for start in starts[:-1]
    )


def global_pool(d: Draft) -> Call:
    op = d.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    x = d.pick((FLOAT,), least=3)
    return Call(op, [x], magnitude=x.magnitude * 10)
