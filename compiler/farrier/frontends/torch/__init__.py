"""The frontend for exported PyTorch programs (`.pt2`): archive → dataclasses → the builder.

It reads files that `torch.export.save` writes, without torch. The bytes are not trusted: pickles
are never loaded, formulas never evaluated, and every offset is checked.
"""

from farrier.frontends.torch.document import inspection
from farrier.frontends.torch.importer import import_model

__all__ = ["import_model", "inspection"]
