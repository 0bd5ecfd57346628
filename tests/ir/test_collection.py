"""No cycles of garbage are looked for within a block, and are again behind it."""

from __future__ import annotations

import gc

import pytest

from farrier.ir.collection import no_collection


def test_garbage_is_collected_again_when_the_last_thread_is_done():
    outer, inner = no_collection(), no_collection()
    with outer:
        with inner:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_it():
    with pytest.raises(KeyError), no_collection():
        raise KeyError
    assert gc.isenabled()


def test_who_has_turned_it_off_keeps_it_so():
    gc.disable()
    try:
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
