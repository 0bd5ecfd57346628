"""Test suites for packages that implement a protocol of Farrier.

    from farrier.testing import BackendContract

    class TestAbacus(BackendContract):
        module = "abacus"
        machine = "abacus"

`pytest`, which this package requires, collects the tests in such a subclass. No other part of
Farrier imports this package.
"""

from __future__ import annotations

from farrier.testing.backend_contract import BackendContract

__all__ = ["BackendContract"]
