"""The learned cost model: what measurements say about candidates that nobody measured."""

from farrier.cost_model.model import CostModel
from farrier.cost_model.packaged import PRETRAINED, pretrained

__all__ = ["PRETRAINED", "CostModel", "pretrained"]
