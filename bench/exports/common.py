"""Helpers that the exported models share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.export import Dim

# A module, its arguments, and its dynamic shapes.
Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class Wrapped(nn.Module):
    """A model as a function of tensors, by `call`. `names` are the names of its inputs in the ONNX
    file; without them torch chooses."""

    def __init__(self, model: nn.Module, call: Callable[..., Any], *names: str) -> None:
        super().__init__()
        self.model = model
        self.names = list(names) or None
        self._call = call

    def forward(self, *arguments: Any) -> Any:
        return self._call(self.model, *arguments)


def batch() -> Any:
    return Dim("batch", min=1, max=8)


def named(*cases: Callable[[], Case]) -> dict[str, Callable[[], Case]]:
    """Return the cases by the names of their functions."""
    return {case.__name__: case for case in cases}


def randomize(module: nn.Module) -> None:
    """Set random weights that keep activations near one, and statistics that exercise folding. With
    transformers' own initial weights, whole models vanish in rounding."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.normal_(layer.running_mean, 0.0, 0.1)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0.0, 0.1)
