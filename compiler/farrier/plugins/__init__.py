"""Plugins: extensions of the compiler in other packages, found by the entry points that these
declare.
"""

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
