"""Tensors that share memory: a write to one of them is visible in the others.

Exported programs may work in place: `x[:, 0] = 1` is a slice of x, and a fill of that slice. The
graph has no mutable tensors, so a write to a view becomes a new value of the view's base, and all
views of the base are recomputed from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import RULES
from farrier.ops import NotSupported

Again = Callable[[str], str]


@dataclasses.dataclass(frozen=True, slots=True)
class _View:
    """A view of the tensor `base`. `target` and `arguments` are the operator and the arguments that
    produce it. `again` recomputes the view from a new value of the base; None if the view is the
    base itself."""

    base: str
    again: Again | None
    target: str
    arguments: Sequence[Any]


class Aliases:
    """The views among the values of a graph, by name, in the order of their definition. `values`
    are the current values of the graph by name, which a write changes."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._views: dict[str, _View] = {}

    def note(
        self,
        name: str,
        base: str,
        again: Again | None,
        target: str = "",
        arguments: Sequence[Any] = (),
    ) -> None:
        """Record that the value `name` is a view of the value `base`."""
        self._views[name] = _View(base, again, target, arguments)

    def write(self, name: str, value: str, s: Scope) -> None:
        """Apply an in-place write: `value` becomes the new value of `name`, is written back to the
        tensors of which `name` is a view, and all other views of these tensors are recomputed.
        Raises NotSupported for a view whose elements cannot be written back."""
        path = {name}
        self._values[name] = value
        while name in self._views:
            view = self._views[name]
            value = self._written(view, value, s)
            name = view.base
            self._values[name] = value
            path.add(name)
        changed = set(path)
        for other, view in self._views.items():
            if view.base in changed and other not in path:
                base = self._values[view.base]
                self._values[other] = base if view.again is None else view.again(base)
                changed.add(other)

    def _written(self, view: _View, value: str, s: Scope) -> str:
        """Return the base of a view, with the elements that the view selects replaced by those of
        `value`."""
        base = self._values[view.base]
        match view.target:
            case "":
                return value
            case "aten.slice.Tensor":
                return str(RULES["aten.slice_scatter.default"](s, base, value, *view.arguments))
            case "aten.select.int":
                return str(RULES["aten.select_scatter.default"](s, base, value, *view.arguments))
            case "aten.transpose.int":
                return s.swapped(value, *view.arguments)
            case "aten.t.default":
                return s.swapped(value, -1, -2) if s.rank(value) > 1 else value
            case "aten.detach.default" | "aten.alias.default":
                return value
            case "aten.permute.default":
                axes = [s.axis(base, dim) for dim in view.arguments[0]]
                return s.transpose(value, [axes.index(axis) for axis in range(len(axes))])
        if view.target in _RESHAPES:
            return s.reshape(value, s.shape(base))
        raise NotSupported(f"writing in place into what {view.target} returns")


_RESHAPES = {
    "aten.view.default",
    "aten.reshape.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.squeeze.default",
}
