"""The frontend for TFLite (LiteRT) models: flatbuffer → dataclasses → the builder.

The bytes come from strangers: every offset and index is checked, and the file is all that is read.
"""

from farrier.frontends.tflite.document import inspection
from farrier.frontends.tflite.importer import import_model

__all__ = ["import_model", "inspection"]
