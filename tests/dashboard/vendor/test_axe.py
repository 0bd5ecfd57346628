"""Test that the library of the accessibility tests is the named one, with its licence.

axe-core by Deque, from the npm package of that name (`npm pack axe-core@VERSION`, axe.min.js)."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent
VERSION = "4.14.1"
SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"


def test_it_is_pinned():
    script = (FOLDER / "axe.min.js").read_bytes()
    assert hashlib.sha256(script).hexdigest() == SHA256
    assert script.startswith(f"/*! axe v{VERSION}\n".encode())


def test_its_licence_lies_beside_it():
    licence = (FOLDER / "axe-LICENSE").read_text()
    assert "Mozilla Public License" in licence
    assert "2.0" in licence.splitlines()[0]
