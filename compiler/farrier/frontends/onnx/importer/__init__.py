"""ONNX bytes → typed graph with static shapes. The only part of Farrier that knows ONNX.

The bytes come from strangers: files that a model names are opened in its own folder alone, and
nothing is allocated that is much larger than the model itself before its size was checked.
"""

from farrier.frontends.inspection import Inspection
from farrier.frontends.onnx.importer.build import import_model
from farrier.frontends.onnx.importer.document import inspection
from farrier.frontends.onnx.importer.external import exposed, relocated
from farrier.frontends.onnx.importer.inspect import ModelSummary, inspect
from farrier.frontends.onnx.importer.reading import makers

__all__ = [
    "Inspection",
    "ModelSummary",
    "exposed",
    "import_model",
    "inspect",
    "inspection",
    "makers",
    "relocated",
]
