"""Tests that an implementation of a protocol of Farrier passes, for packages that bring their own.

    from farrier.testing import BackendContract

    class TestAbacus(BackendContract):
        module = "abacus"
        machine = "abacus"

`pytest`, which this package needs, collects the guarantees in such a subclass. Nothing else of
Farrier imports it.
"""

from __future__ import annotations

from farrier.testing.backend_contract import BackendContract

__all__ = ["BackendContract"]
