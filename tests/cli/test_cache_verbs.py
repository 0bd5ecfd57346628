"""Tests of `farrier cache`, which lists and removes the models that sessions keep."""

from __future__ import annotations

import farrier as library


def test_show_verify_and_clear(farrier, mlp, tmp_path, monkeypatch):
    place = str(tmp_path / "cache")
    monkeypatch.setenv("FARRIER_CACHE", place)
    empty = farrier("cache", "show", FARRIER_CACHE=place)
    assert empty.stderr.startswith("0 models, 0.00 MB of 8.59 GB, in ")
    options = library.SessionOptions()
    options.add_free_dimension_override_by_name("n", 2)
    library.InferenceSession(mlp, options)
    shown = farrier("cache", "show", FARRIER_CACHE=place, FARRIER_CACHE_BYTES="0")
    assert "mlp.onnx  host (" in shown.stdout
    assert " s ago" in shown.stdout
    assert "1 models" in shown.stderr
    assert "of no limit" in shown.stderr
    (entry,) = (tmp_path / "cache" / "entries").glob("*.farrier")
    data = bytearray(entry.read_bytes())
    data[len(data) // 3] ^= 255
    entry.write_bytes(data)
    verified = farrier("cache", "verify", FARRIER_CACHE=place)
    assert "removed mlp.onnx: " in verified.stdout
    assert "0 models are whole, 1 were not" in verified.stderr
    library.InferenceSession(mlp, options)
    cleared = farrier("cache", "clear", FARRIER_CACHE=place)
    assert cleared.stderr.startswith("removed 1 models, ")
    assert not list((tmp_path / "cache").iterdir())


def test_a_cache_that_is_off_is_not_found(farrier):
    done = farrier("cache", "show", FARRIER_CACHE="off")
    assert done.returncode == 12
    assert "FARRIER_CACHE is off" in done.stderr
