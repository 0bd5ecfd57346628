"""Extensions of the compiler by other packages, found by the entry points that they declare."""

from farrier.plugins.plugin import (
    BACKENDS,
    INTRINSICS,
    OPERATORS,
    TEMPLATES,
    Plugin,
    declared,
    plugins,
)

__all__ = ["BACKENDS", "INTRINSICS", "OPERATORS", "TEMPLATES", "Plugin", "declared", "plugins"]
