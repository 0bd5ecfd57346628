"""Helpers of the modules that define exported models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.export import Dim

# A module, its arguments, and its dynamic shapes.
Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class Wrapped(nn.Module):
    """A module that calls `call` on tensors. `names` are the input names in the ONNX file; without
    them torch chooses names."""

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
    """Return the functions that create cases, by function name."""
    return {case.__name__: case for case in cases}


def randomize(module: nn.Module) -> None:
    """Set random weights that keep activations near one, and random statistics, which make the
    folding of normalizations visible. With transformers' own initial weights, the contribution of
    entire layers would be below the rounding error."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.normal_(layer.running_mean, 0.0, 0.1)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0.0, 0.1)
