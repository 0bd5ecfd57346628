"""Schedule spaces (sketches) that are derived from the structure of any program, without a rule for
its operators."""

from farrier.targets.cpu.sketch.contraction import is_wide_contraction
from farrier.targets.cpu.sketch.derive import RULES, sketches
from farrier.targets.cpu.sketch.phases import has_residues

__all__ = ["RULES", "has_residues", "is_wide_contraction", "sketches"]
