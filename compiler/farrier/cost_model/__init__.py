"""The learned cost model: what measurements say about candidates that nobody measured."""

from farrier.cost_model.model import CostModel

__all__ = ["CostModel"]
