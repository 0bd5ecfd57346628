"""ONNX bytes → typed graph. The only part of Farrier that imports the onnx package.

The bytes are not trusted: data files are opened only in the model's own folder, and memory much
larger than the model is allocated only after a check of its size.
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
