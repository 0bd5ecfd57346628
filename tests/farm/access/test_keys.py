"""The farm's signing key: one a home, private, and rotated without forgetting the ones before."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from farrier.artifact.signature import SigningKey
from farrier.errors import StorageError
from farrier_farm.access.keys import KEY, Keys


def test_a_key_is_made_once_and_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = Keys(home).current()
    assert Keys(home).current().public == key.public
    assert stat.S_IMODE((home / KEY).stat().st_mode) == 0o600
    assert [file.name for file in home.iterdir()] == [KEY]
    assert Keys(home).retired() == []


def test_starts_at_once_agree(tmp_path: Path) -> None:
    gate, keys = threading.Barrier(8), []

    def start() -> None:
        gate.wait()
        keys.append(Keys(tmp_path).current().public)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert [file.name for file in tmp_path.iterdir()] == [KEY]


def test_keys_of_before_stay_listed(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    first = keys.current().public
    second = keys.rotate().public
    assert Keys(tmp_path).current().public == second != first
    third = Keys(tmp_path).rotate().public
    assert keys.current().public == third
    assert keys.retired() == [second, first]
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"no key", SigningKey.new().pem[:40]])
def test_a_damaged_key_is_named_and_not_replaced(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / KEY).write_bytes(damage)
    for use in (Keys(tmp_path).current, Keys(tmp_path).rotate):
        with pytest.raises(StorageError, match=r"signing\.key is not a private key") as caught:
            use()
        assert "restore it" in caught.value.hint
    assert (tmp_path / KEY).read_bytes() == damage
