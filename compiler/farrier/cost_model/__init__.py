"""The learned cost model: it predicts the speed of candidates from measurements of others."""

from farrier.cost_model.model import CostModel
from farrier.cost_model.packaged import PRETRAINED, pretrained

__all__ = ["PRETRAINED", "CostModel", "pretrained"]
