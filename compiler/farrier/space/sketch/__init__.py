"""Schedule spaces that are derived from the structure of a program, with no rule for it."""

from farrier.space.sketch.contraction import is_wide_contraction
from farrier.space.sketch.derive import RULES, sketches
from farrier.space.sketch.phases import has_residues

__all__ = ["RULES", "has_residues", "is_wide_contraction", "sketches"]
