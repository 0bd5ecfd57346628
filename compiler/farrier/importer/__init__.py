"""ONNX bytes → typed graph with static shapes. The only part of Farrier that knows ONNX.

The bytes come from strangers: nothing here opens a path, and nothing is allocated that is much
larger than the model itself before its size was checked.
"""

from farrier.importer.build import ImportedModel, import_model
from farrier.importer.inspect import ModelSummary, inspect

__all__ = ["ImportedModel", "ModelSummary", "import_model", "inspect"]
