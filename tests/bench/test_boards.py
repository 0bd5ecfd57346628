"""`make boards`: what it does where there can be no arm64 root, and what emulated boards are."""

from __future__ import annotations

import os
import shutil
import stat
import sys

import pytest

from bench.boards import __main__ as command
from bench.boards import artifacts, board, cpio, root
from farrier.errors import UsageError
from farrier.targets import known_machines, parse_target
from farrier_device import describe
from farrier_device.arch import arm

BOARDS = [name for name in known_machines() if parse_target(name).arch == "aarch64"]


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["boards", *words])
        code = command.main()
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


class TestWithoutRoot:
    def test_it_says_so(self, run, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        code, said = run()
        assert code != 0
        assert "run it as root" in said

    def test_where_it_is_optional_it_succeeds(self, run, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        code, said = run("--optional")
        assert (code, said.count("\n")) == (0, 1)
        assert said.startswith("skipped: ")

    def test_missing_packages_are_named(self, run, monkeypatch):
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(shutil, "which", lambda tool: None)
        code, said = run("--optional")
        assert code == 0
        assert "debootstrap, dpkg, qemu-user-static" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "models,kernels"], "unknown part 'kernels'"),
        (["--every", "0"], "--every takes 1 or more"),
    ],
)
def test_what_it_does_not_know_is_refused_before_a_root_is_made(run, monkeypatch, words, said):
    monkeypatch.setattr(command, "root", lambda say: pytest.fail("a root is made"))
    code, text = run(*words)
    assert code != 0
    assert said in text


def test_a_folder_without_models_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no \.onnx file"):
        artifacts.files(tmp_path)


@pytest.mark.parametrize("name", BOARDS)
def test_a_processor_has_what_code_for_a_board_may_use(name):
    target = parse_target(name)
    text = board.cpuinfo(2, board.qemu_cpu(name))
    processors = describe.parse_cpuinfo(text)
    assert set(processors) == {0, 1}
    assert target.backend.implied(target.cpu) <= set(processors[1]["Features"].split())
    assert arm.core(processors[1]) != ""


def test_an_older_core_runs_on_an_older_processor():
    """An instruction of a newer core is illegal there."""
    assert board.qemu_cpu("rpi4") == "cortex-a72"
    assert board.qemu_cpu("rpi5") == "neoverse-n1"
    assert board.qemu_cpu("graviton3").startswith("max")


def test_numbers_of_a_board_are_exact_to_the_line():
    right = artifacts.Checked("m", "rpi4", 1e-6, 1.0)
    apart = artifacts.Checked("m", "rpi4", 2e-5, 1.0, exact=2e-6, peer_exact=2e-5)
    wrong = artifacts.Checked("m", "rpi4", 2e-5, 1.0, exact=2e-5, peer_exact=1e-6)
    failed = artifacts.Checked("m", "rpi4", float("nan"), 1.0, failure="it crashed")
    assert [verdict.is_right for verdict in (right, apart, wrong, failed)] == [
        True,
        True,
        False,
        False,
    ]


def test_an_archive_holds_files_folders_and_links(tmp_path):
    folder = tmp_path / "root"
    (folder / "bin/skipped").mkdir(parents=True)
    (folder / "bin/tool").write_text("abc")
    (folder / "bin/tool").chmod(0o755)
    (folder / "bin/link").symlink_to("tool")
    (folder / "bin/skipped/file").touch()
    with (tmp_path / "archive").open("wb") as file:
        archive = cpio.Writer(file)
        archive.tree(folder, without=frozenset({"bin/skipped"}))
        archive.text("init", "go", 0o700)
        archive.device("console", 5, 1)
        archive.end()
    entries = dict(_entries((tmp_path / "archive").read_bytes()))
    assert list(entries) == ["bin", "bin/link", "bin/tool", "init", "console", "TRAILER!!!"]
    assert stat.S_ISDIR(entries["bin"][0])
    assert entries["bin/tool"] == (stat.S_IFREG | 0o755, b"abc")
    assert entries["bin/link"][1] == b"tool"
    assert stat.S_ISLNK(entries["bin/link"][0])
    assert entries["init"] == (stat.S_IFREG | 0o700, b"go")
    assert stat.S_ISCHR(entries["console"][0])


def _entries(data):
    """Name, mode and contents of each entry of a newc archive."""
    at = 0
    while at < len(data):
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, length = fields[6], fields[11]
        name = data[at + 110 : at + 110 + length - 1].decode()
        start = -(-(at + 110 + length) // 4) * 4
        yield name, (fields[1], data[start : start + size])
        at = -(-(start + size) // 4) * 4


def test_the_environment_of_the_root_names_its_own_places():
    paths = root.environment()["PYTHONPATH"].split(":")
    assert all(path.startswith((root.INSIDE, f"/{root.WHEELS}")) for path in paths)
