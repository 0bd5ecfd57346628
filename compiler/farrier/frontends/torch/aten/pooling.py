"""Rules of pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from farrier.frontends.torch.scope import Scope, each
from farrier.frontends.torch.table import aten
from farrier.ops import NotSupported


def _window(rank: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, Any]:
    return {
        "kernel_shape": each(kernel, rank),
        "strides": each(stride or kernel, rank),
        "pads": each(padding, rank) * 2,
        "ceil_mode": int(ceil_mode),
    }


def _pooled(s: Scope, x: str, rank: int, op: str, attrs: dict[str, Any]) -> str:
    with s.batched(x, rank) as batch:
        batch.y = s.node(op, batch.x, **attrs)
    return batch.result


def _max_pool(rank: int) -> Callable[..., str]:
    def rule(
        s: Scope,
        x: str,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> str:
        attrs = _window(rank, kernel, stride, padding, ceil_mode)
        return _pooled(s, x, rank, "MaxPool", {**attrs, "dilations": each(dilation, rank)})

    return rule


def _average_pool(rank: int) -> Callable[..., str]:
    def rule(
        s: Scope,
        x: str,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> str:
        if divisor_override is not None:
            raise NotSupported("divisor_override")
        attrs = _window(rank, kernel, stride, padding, ceil_mode)
        attrs["count_include_pad"] = int(count_include_pad)
        return _pooled(s, x, rank, "AveragePool", attrs)

    return rule


def _adaptive(rank: int, op: str, reduction: str) -> Callable[..., str]:
    def rule(s: Scope, x: str, output_size: Any) -> str:
        first = s.rank(x) - rank
        extents = s.shape(x)[first:]
        sizes = [
            extent if size is None else size
            for extent, size in zip(extents, each(output_size, rank), strict=True)
        ]
        if all(size == 1 for size in sizes):
            return s.node(reduction, x, s.ints(range(first, s.rank(x))), keepdims=1)
        if all(isinstance(e, int) and e % n == 0 for e, n in zip(extents, sizes, strict=True)):
            kernel = [e // n for e, n in zip(extents, sizes, strict=True)]
            return _pooled(s, x, rank, op, _window(rank, kernel, kernel, 0, False))
        for axis, size in enumerate(sizes):
            x = _parts(s, x, first + axis, size, reduction)
        return x

    return rule


def _parts(s: Scope, x: str, axis: int, size: Any, reduction: str) -> str:
    """Reduce an axis to `size` elements by adaptive pooling: each result is the reduction of one of
    `size` parts of nearly equal length, which may overlap."""
    extent = s.shape(x)[axis]
    if extent == size:
        return x
    parts = []
    for place in range(size):
        start, end = extent * place // size, (extent * (place + 1) + size - 1) // size
        part = s.slice(x, axis, start, end)
        parts.append(s.node(reduction, part, s.ints([axis]), keepdims=1))
    return s.concat(parts, axis)


for _rank in (1, 2, 3):
    aten(f"aten.max_pool{_rank}d.default")(_max_pool(_rank))
    aten(f"aten.avg_pool{_rank}d.default")(_average_pool(_rank))
    _names = [f"aten.adaptive_avg_pool{_rank}d.default", f"aten._adaptive_avg_pool{_rank}d.default"]
    aten(*_names)(_adaptive(_rank, "AveragePool", "ReduceMean"))


def _without_indices(rule: Callable[..., str]) -> Callable[..., tuple[str, str]]:
    """Return the rule of an operator that also returns indices. The indices are not computed, and
    reading them is an error."""

    def both(s: Scope, *arguments: Any) -> tuple[str, str]:
        return rule(s, *arguments), ""

    return both


aten("aten.max_pool2d_with_indices.default")(_without_indices(_max_pool(2)))
for _rank in (1, 2):
    aten(f"aten.adaptive_max_pool{_rank}d.default")(
        _without_indices(_adaptive(_rank, "MaxPool", "ReduceMax"))
    )
