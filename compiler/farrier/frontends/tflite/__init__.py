"""The frontend for TFLite (LiteRT) models: flatbuffer → dataclasses → the builder.

The bytes are not trusted: every offset and index is checked, and no other file is read.
"""

from farrier.frontends.tflite.document import inspection
from farrier.frontends.tflite.importer import import_model

__all__ = ["import_model", "inspection"]
