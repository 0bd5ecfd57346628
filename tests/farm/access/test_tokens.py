"""Tokens: one a role, private, the same for every process of a home."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from farrier.errors import StorageError
from farrier_farm.access.tokens import TokenRole, load_token, matches, token_file
from farrier_farm.settings import Settings


def test_tokens_are_made_once_and_private(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    assert load_token(settings, TokenRole.USER) is None
    user = load_token(settings, TokenRole.USER, create=True)
    device = load_token(settings, TokenRole.DEVICE, create=True)
    assert user is not None
    assert len(user) >= 40
    assert user != device
    assert load_token(settings, TokenRole.USER) == user
    assert load_token(settings, TokenRole.USER, create=True) == user
    files = sorted(settings.home.iterdir())
    assert [f.name for f in files] == ["device.token", "user.token"]
    assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}


def test_starts_at_once_agree(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    loaded: list[str | None] = []
    threads = [
        threading.Thread(
            target=lambda: loaded.append(load_token(settings, TokenRole.USER, create=True))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 8
    assert len(set(loaded)) == 1


def test_the_environment_wins_over_files(tmp_path: Path) -> None:
    load_token(Settings(home=tmp_path), TokenRole.USER, create=True)
    secret = tmp_path / "secret"
    secret.write_text("from-file\n")
    named = Settings(home=tmp_path, token_file=secret)
    assert load_token(named, TokenRole.USER) == "from-file"
    direct = Settings(home=tmp_path, token="direct", token_file=secret)
    assert load_token(direct, TokenRole.USER) == "direct"
    assert load_token(direct, TokenRole.DEVICE) is None


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, device_token_file=tmp_path / "missing")
    with pytest.raises(StorageError, match="missing"):
        load_token(settings, TokenRole.DEVICE, create=True)


def test_a_file_holds_what_is_loaded(tmp_path: Path) -> None:
    settings_with_home = Settings(home=tmp_path)
    load_token(settings_with_home, TokenRole.DEVICE, create=True)
    secret = tmp_path / "secret"
    secret.write_text("from-file\n")
    named = Settings(home=tmp_path, device_token_file=secret)
    for settings in (
        settings_with_home,
        named,
        Settings(home=tmp_path / "new", device_token="direct"),
    ):
        path = token_file(settings, TokenRole.DEVICE)
        assert path.read_text().strip() == load_token(settings, TokenRole.DEVICE)
    assert path.stat().st_mode & 0o777 == 0o600
    changed = Settings(home=tmp_path / "new", device_token="other", device_token_file=secret)
    assert token_file(changed, TokenRole.DEVICE).read_text().strip() == "other"


def test_comparing() -> None:
    assert matches("tökén", "tökén")
    assert not matches("token", "token2")
    assert not matches("", "token")
