"""What other packages add to the compiler, found by the entry points that they declare."""

from farrier.plugins.plugin import Plugin, plugins

__all__ = ["Plugin", "plugins"]
