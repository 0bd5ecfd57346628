"""Named users: a token each, shown once, read by whoever shares the home."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from farrier.errors import ConflictError, NotFoundError, UsageError
from farrier_farm.users import Users


def test_a_token_names_its_user_and_is_kept_nowhere(tmp_path: Path) -> None:
    users, others = Users(tmp_path / "home"), Users(tmp_path / "home")
    assert others.owner_of("token") is None
    token = users.add("ann@lab-1")
    assert len(token) >= 40
    assert (others.owner_of(token), others.owner_of(token[:-1])) == ("ann@lab-1", None)
    assert [user.name for user in others.list()] == ["ann@lab-1"]
    for path in (tmp_path / "home").iterdir():
        assert token not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConflictError, match="has a token"):
        others.add("ann@lab-1")
    others.remove("ann@lab-1")
    assert users.owner_of(token) is None
    with pytest.raises(NotFoundError, match="ann@lab-1"):
        users.remove("ann@lab-1")
    assert users.owner_of(users.add("ann@lab-1")) == "ann@lab-1"


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\nb", "a:b", "ü", "x" * 65, "../a"])
def test_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name of a user"):
        Users(tmp_path).add(name)


def test_the_installation_s_own_user_is_no_other(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="default"):
        Users(tmp_path).add("default")


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    names = [f"user-{n}" for n in range(12)]
    threads = [threading.Thread(target=Users(tmp_path).add, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [user.name for user in Users(tmp_path).list()] == sorted(names)
