"""Named users: a token each, shown once, read by whoever shares the home."""

from __future__ import annotations

import hashlib
import json
import stat
import threading
import time
from pathlib import Path

import pytest

from farrier.errors import ConflictError, NotFoundError, StorageError, UsageError
from farrier_farm.access.users import THE_DEFAULT, Role, Users, read_expiry


def test_a_token_names_its_user_and_is_kept_nowhere(tmp_path: Path) -> None:
    users, others = Users(tmp_path / "home"), Users(tmp_path / "home")
    assert others.who_has("token") is None
    token = users.add("ann@lab-1")
    assert len(token) >= 40
    assert others.who_has(token) == others.named("ann@lab-1")
    assert others.who_has(token[:-1]) is None
    assert [user.name for user in others.list()] == ["ann@lab-1"]
    for path in (tmp_path / "home").iterdir():
        assert token not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ConflictError, match="has a token"):
        others.add("ann@lab-1")
    others.remove("ann@lab-1")
    assert users.who_has(token) is None
    with pytest.raises(NotFoundError, match="ann@lab-1"):
        users.remove("ann@lab-1")
    assert users.who_has(users.add("ann@lab-1")) == users.named("ann@lab-1")


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\nb", "a:b", "ü", "x" * 65, "../a"])
def test_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not a name for a user"):
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


def test_a_user_has_a_role_a_group_and_a_time(tmp_path: Path) -> None:
    users = Users(tmp_path)
    soon = time.time() + 60
    users.add("ann")
    users.add("bob", Role.OPERATOR, group="lab", expires=soon)
    users.add("eve", Role.ADMIN, group="lab")
    ann, bob, eve = Users(tmp_path).list()
    assert (ann.role, ann.group, ann.expires) == (Role.USER, "", None)
    assert (bob.role, bob.group, bob.expires) == (Role.OPERATOR, "lab", soon)
    assert users.members("lab") == {"bob", "eve"}
    assert users.members("") == frozenset()
    assert not bob.has_expired
    assert users.named("default") == THE_DEFAULT
    assert [eve.role.includes(role) for role in Role] == [True, True, True]
    assert [bob.role.includes(role) for role in Role] == [True, True, False]
    assert [ann.role.includes(role) for role in Role] == [True, False, False]


def test_a_user_of_an_older_home_is_an_admin(tmp_path: Path) -> None:
    raw = {"ann": {"sha256": hashlib.sha256(b"token").hexdigest(), "created": 1.0}}
    (tmp_path / "users.json").write_text(json.dumps(raw))
    user = Users(tmp_path).who_has("token")
    assert user is not None
    assert (user.name, user.role, user.group, user.expires) == ("ann", Role.ADMIN, "", None)
    Users(tmp_path).add("bob")
    assert Users(tmp_path).named("ann") == user


def test_a_role_that_nobody_knows_is_damage(tmp_path: Path) -> None:
    raw = {"ann": {"sha256": "0", "created": 1.0, "role": "root"}}
    (tmp_path / "users.json").write_text(json.dumps(raw))
    with pytest.raises(StorageError, match="root"):
        Users(tmp_path).list()


def test_a_rotated_token_keeps_all_but_itself(tmp_path: Path) -> None:
    users = Users(tmp_path)
    old = users.add("ann", Role.OPERATOR, group="lab", expires=time.time() + 60)
    before = users.named("ann")
    new = users.rotate("ann")
    after = users.named("ann")
    assert before
    assert after
    assert (users.who_has(old), users.who_has(new)) == (None, after)
    kept = (after.role, after.group, after.expires)
    assert kept == (before.role, before.group, before.expires)
    users.rotate("ann", for_ever=True)
    assert users.list()[0].expires is None
    with pytest.raises(NotFoundError, match="bob"):
        users.rotate("bob")


def test_an_expired_token_is_rotated_with_a_new_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = Users(tmp_path)
    users.add("ann", expires=time.time() + 60)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert users.list()[0].has_expired
    with pytest.raises(UsageError, match="has expired") as caught:
        users.rotate("ann")
    assert "--expires" in caught.value.hint
    users.rotate("ann", expires=later + 60)
    assert not users.list()[0].has_expired


def test_times_at_which_a_token_expires(tmp_path: Path) -> None:
    now = time.time()
    for text, seconds in {"90m": 5400, "12h": 43200, "30d": 30 * 86400, "8w": 56 * 86400}.items():
        assert (read_expiry(text) or 0) - now == pytest.approx(seconds, abs=60)
    assert read_expiry("2100-01-31") == 4_105_036_800.0
    assert read_expiry("2100-01-31T01:00+01:00") == 4_105_036_800.0
    assert read_expiry("never") is None
    for text in ("", "30", "30y", "d", "-3d", "soon", "2100-02-30", "3.5d", "٣d", "inf"):
        with pytest.raises(UsageError, match="not a valid expiry time"):
            read_expiry(text)
    for expires in (read_expiry("2001-01-01"), now - 1, float("inf"), float("nan"), 1e300):
        with pytest.raises(UsageError):
            Users(tmp_path).add("ann", expires=expires)
    assert Users(tmp_path).list() == []


@pytest.mark.parametrize("group", ["a b", "-a", "ü", "x" * 65])
def test_what_is_no_group(tmp_path: Path, group: str) -> None:
    with pytest.raises(UsageError, match="not a name for a group"):
        Users(tmp_path).add("ann", group=group)
