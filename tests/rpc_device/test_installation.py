"""Tests of the paths that a process may read to load code, without secrets."""

from __future__ import annotations

from pathlib import Path

from farrier_device import installation


def test_what_lies_beside_a_secret_is_read_and_what_lies_below_it_is_not(tmp_path: Path) -> None:
    for name in ("lib/python/a", "lib/home/token", "lib/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lib/way_in").symlink_to(tmp_path / "lib/home")
    access = dict(installation.without(tmp_path, [tmp_path / "lib/home"]))
    read = {p.relative_to(tmp_path).as_posix() for p, a in access.items() if a & a.READ == a.READ}
    assert read == {"lib/python", "lib/other"}
    assert dict(installation.without(tmp_path / "lib/home/token", [tmp_path / "lib/home"])) == {}
