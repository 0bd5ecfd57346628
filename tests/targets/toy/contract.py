"""The tests of the package abacus, as its author would write them."""

from __future__ import annotations

from farrier.testing import BackendContract


class TestAbacus(BackendContract):
    module = "abacus"
    machine = "abacus"
