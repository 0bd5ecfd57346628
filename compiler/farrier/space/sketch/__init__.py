"""Schedule spaces that are derived from the structure of a program, with no rule for it."""

from farrier.space.sketch.contraction import is_wide_contraction
from farrier.space.sketch.derive import RULES, sketches

__all__ = ["RULES", "is_wide_contraction", "sketches"]
