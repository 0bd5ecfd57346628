"""Tests of the cache: which models are found again, and the cost of a broken disk or entry."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from cache_tools import WEIGHTS, Watched, long_ago, model_bytes

from farrier import plugins
from farrier.cache import files, key
from farrier.cache.settings import DEFAULT_BYTES, CacheSettings
from farrier.cache.store import Store
from farrier.errors import ArtifactError, InvalidModelError, StorageError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions

X = np.ones((2, 600), np.float32)


def computes(artifact, scale=1.0):
    np.testing.assert_allclose(artifact.run({"x": X})["y"], X @ WEIGHTS * scale, atol=1e-3)


def entries(watched):
    return sorted((watched.settings.folder / "entries").glob("*.farrier"))


def test_a_model_is_compiled_once(watched, path):
    computes(watched.artifact(path))
    again = watched.artifact(path)
    computes(again)
    computes(watched.artifact(path.read_bytes()))  # The content counts, not the place.
    assert watched.compiled == 1
    assert not watched.warned
    assert again.mapped is not None


def test_what_was_warned_of_is_said_again(watched, path):
    watched.told = ["it is not verified"]
    for count in (1, 2):
        watched.artifact(path)
        assert watched.warned == watched.told * count
    (seal,) = watched.settings.folder.glob("entries/*.json")
    os.utime(seal.with_suffix(".farrier"))  # The seal is written anew then.
    watched.artifact(path)
    watched.artifact(path)
    assert (watched.warned, watched.compiled) == (watched.told * 4, 1)


def test_an_entry_has_the_name_of_the_file_that_was_asked_for(watched, path):
    other = path.with_name("other.onnx")
    shutil.copy2(path, other)
    assert [watched.artifact(model_file).manifest.name for model_file in (path, other)] == [
        "m",
        "other",
    ]
    assert watched.compiled == 1


def test_other_options_are_other_entries(watched, path):
    watched.artifact(path)
    watched.artifact(path, max_layer_error=0)
    watched.artifact(path, target="x86-64-v3")
    assert watched.compiled == len(entries(watched)) == 3


def test_a_file_that_changes_is_another_model(watched, path):
    watched.artifact(path)
    path.write_bytes(model_bytes(2.0))  # It has the same size.
    computes(watched.artifact(path), 2.0)
    assert watched.compiled == 2


def test_an_unchanged_file_is_not_hashed(watched, path, monkeypatch):
    watched.artifact(path)
    monkeypatch.setattr(files, "content_of", None)
    watched.artifact(path)
    monkeypatch.chdir(path.parent)
    watched.artifact(Path(path.name))
    assert watched.compiled == 1


def test_a_file_written_just_now_is_hashed_again(watched, path, monkeypatch):
    """It could change once more within the tick of its file system's clock."""
    stamp = files._stamp
    # The stamp has no time of the inode.
    monkeypatch.setattr(files, "_stamp", lambda status: stamp(status)[:-1])
    now = time.time_ns()
    os.utime(path, ns=(now, now))
    watched.artifact(path)
    path.write_bytes(model_bytes(3.0))
    os.utime(path, ns=(now, now))
    computes(watched.artifact(path), 3.0)


def test_a_change_of_content_under_the_same_time_is_seen_by_the_inode_s(watched, path):
    before = path.stat()
    watched.artifact(path)
    path.write_bytes(model_bytes(4.0))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    computes(watched.artifact(path), 4.0)


def test_data_files_are_part_of_the_model(watched, tmp_path, monkeypatch):
    place = tmp_path / "big.onnx"
    data = tmp_path / "big.data"

    def save(scale):
        model = onnx.load_model_from_string(model_bytes(scale))
        onnx.save(model, place, save_as_external_data=True, location=data.name, size_threshold=0)
        for file in (place, data):
            long_ago(file)

    save(1.0)
    computes(watched.artifact(place))
    with monkeypatch.context() as patch:
        patch.setattr(files, "content_of", None)
        computes(watched.artifact(place))
    assert watched.compiled == 1
    save(2.0)  # The message stays the same.
    computes(watched.artifact(place), 2.0)
    assert watched.compiled == 2
    data.unlink()
    with pytest.raises(InvalidModelError, match=r"big\.data"):
        watched.artifact(place)


def revision(folder, message, data):
    """A folder of links: to a message, and to the data that it names."""
    folder.mkdir(parents=True)
    (folder / "m.onnx").symlink_to(message)
    (folder / "m.data").symlink_to(data)
    return folder / "m.onnx"


@pytest.fixture
def blobs(tmp_path):
    """One message, and two data files for it, whose results differ by a factor of 2."""
    folder = tmp_path / "blobs"
    for scale in (1, 2):
        place = tmp_path / f"saved{scale}" / "m.onnx"
        place.parent.mkdir()
        model = onnx.load_model_from_string(model_bytes(scale))
        onnx.save(model, place, save_as_external_data=True, location="m.data", size_threshold=0)
        folder.mkdir(exist_ok=True)
        place.rename(folder / "message")
        place.with_name("m.data").rename(folder / f"data{scale}")
    for file in folder.iterdir():
        long_ago(file)
    return folder


def test_models_that_share_a_linked_message_are_told_apart(watched, tmp_path, blobs):
    for _ in range(2):
        for scale in (1, 2):
            path = tmp_path / f"revision{scale}" / "m.onnx"
            if not path.exists():
                revision(path.parent, blobs / "message", blobs / f"data{scale}")
            computes(watched.artifact(path), scale)
    assert watched.compiled == 2


@pytest.mark.parametrize("turned", ["data", "folder", "message"])
def test_a_link_that_is_turned_leads_to_another_model(watched, tmp_path, blobs, turned):
    link = tmp_path / "here"
    first = revision(tmp_path / "first", blobs / "message", blobs / "data1")
    if turned == "message":
        whole = blobs / "whole"
        whole.write_bytes(model_bytes(2))
        long_ago(whole)
    link.symlink_to(first.parent)
    path = link / "m.onnx"
    computes(watched.artifact(path))
    if turned == "folder":
        revision(tmp_path / "second", blobs / "message", blobs / "data2")
        link.unlink()
        link.symlink_to(tmp_path / "second")
    else:
        name, target = {"data": ("m.data", "data2"), "message": ("m.onnx", "whole")}[turned]
        (link / name).unlink()
        (link / name).symlink_to(blobs / target)
    computes(watched.artifact(path), 2)
    assert watched.compiled == 2


def test_a_damaged_entry_is_thrown_away(watched, path):
    watched.artifact(path)
    (entry,) = entries(watched)
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1  # among the parameters
    entry.write_bytes(data)
    computes(watched.artifact(path))
    assert watched.compiled == 2
    assert "damaged" in watched.warned[0]
    computes(watched.artifact(path))
    assert (watched.compiled, len(watched.warned)) == (2, 1)


@pytest.mark.parametrize("length", [0, 10, 100_000])
def test_an_entry_that_was_cut_is_thrown_away(watched, path, length):
    watched.artifact(path)
    (entry,) = entries(watched)
    os.truncate(entry, length)
    computes(watched.artifact(path))
    assert watched.compiled == 2


def test_an_entry_without_its_seal_is_held_to_its_hashes(watched, path):
    watched.artifact(path)
    (entry,) = entries(watched)
    entry.with_suffix(".json").write_text("[")
    computes(watched.artifact(path))
    assert (watched.compiled, watched.warned) == (1, [])
    assert Store(watched.settings.folder, 0).verify() == []


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_an_entry_may_go_while_it_is_read(watched, path, monkeypatch, what):
    from farrier.cache import store

    watched.artifact(path)
    (entry,) = entries(watched)
    load = store.load_mapped

    def load_late(place):
        monkeypatch.setattr(store, "load_mapped", load)
        if what == "replaced":
            shutil.copyfile(entry, place.with_name("copy"))
            place.with_name("copy").replace(place)
        else:
            place.unlink()
        raise ArtifactError("what was read of two")

    monkeypatch.setattr(store, "load_mapped", load_late)
    computes(watched.artifact(path))
    assert not watched.warned
    assert watched.compiled == (1 if what == "replaced" else 2)


def test_verify_removes_what_is_damaged(watched, path):
    watched.artifact(path)
    (entry,) = entries(watched)
    before = entry.stat()
    with entry.open("r+b") as file:
        file.seek(entry.stat().st_size // 2)
        file.write(b"\1\2\3\4")
    # Bit rot leaves the times unchanged.
    os.utime(entry, ns=(before.st_atime_ns, before.st_mtime_ns))
    ((removed, reason),) = Store(watched.settings.folder, 0).verify()
    assert removed.model == str(path)
    assert "hash" in reason
    assert not entries(watched)


NONSENSE = {
    "another shape": '{"files": 3}',
    "endless": "[" * 100_000,
    "a time that is no number": '{"files": [["", "m.onnx"]], "hashed_ns": Infinity}',
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_records_and_seals_of_nonsense_are_none(watched, path, text):
    watched.artifact(path)
    for record in watched.settings.folder.glob("*/*.json"):
        record.write_text(text)
    computes(watched.artifact(path))
    assert watched.compiled == 1


def test_the_entry_used_longest_ago_goes_first(watched, tmp_path):
    models = [model_bytes(scale) for scale in (1.0, 2.0, 3.0)]
    watched.artifact(models[0])
    size = entries(watched)[0].stat().st_size
    watched.settings = dataclasses.replace(watched.settings, limit_bytes=int(2.5 * size))
    (first,) = (watched.settings.folder / "entries").glob("*.json")
    watched.artifact(models[1])
    for seal in (watched.settings.folder / "entries").glob("*.json"):
        long_ago(seal)
    os.utime(first, (1, 1))
    kept = watched.artifact(models[0])  # used now
    watched.artifact(models[2])
    assert len(entries(watched)) == 2
    watched.artifact(models[0])
    assert watched.compiled == 3
    watched.artifact(models[1])
    assert watched.compiled == 4
    Store(watched.settings.folder, 0).clear()
    computes(kept)  # Its file is gone, but its memory is not.
    assert not watched.warned


def test_what_is_larger_than_the_cache_is_not_kept(watched, path):
    watched.settings = dataclasses.replace(watched.settings, limit_bytes=1000)
    computes(watched.artifact(path))
    assert "1000 at most" in watched.warned[0]
    assert not entries(watched)


def test_what_dead_processes_leave_is_removed(watched, path):
    folder = watched.settings.folder / "entries"
    folder.mkdir(parents=True)
    left = [folder / f".{'a' * 64}.farrier.abcd_123", folder / f"{'a' * 64}.json"]
    for file in left:
        file.write_bytes(b"half")
        os.utime(file, (0, 0))
    watched.artifact(path)
    assert not any(file.exists() for file in left)


def test_files_of_somebody_else_s_stay(watched, path):
    folder = watched.settings.folder
    others = [
        "entries/notes.json",
        "entries/.profile",
        "files/thesis.txt",
        "locks/door",
        "a.farrier",
    ]
    others.append("entries/my model.farrier")
    for name in others:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("mine")
        os.utime(place, (0, 0))
    watched.settings = dataclasses.replace(watched.settings, limit_bytes=100 << 20)
    watched.artifact(path)
    store = Store(folder, 0)
    assert len(store.entries()) == 1
    store.clear()
    left = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert left == set(others)


def test_what_is_removed_while_it_is_kept_is_used_all_the_same(watched, path, monkeypatch):
    from farrier.runtime.artifact import Artifact

    save = Artifact.save

    def save_and_lose(artifact, place):
        save(artifact, place)
        Store(watched.settings.folder, 0).clear()

    monkeypatch.setattr(Artifact, "save", save_and_lose)
    computes(watched.artifact(path))
    assert "was removed as soon as it was written" in watched.warned[0]


def test_a_file_that_goes_while_it_is_hashed_is_named(blobs, tmp_path):
    path = revision(tmp_path / "here", blobs / "message", blobs / "data1")
    model = Model.of_path(path)
    assert set(model.external) == {"m.data"}
    path.with_name("m.data").unlink()
    with pytest.raises(InvalidModelError, match=r"m\.data is gone"):
        files.content_of(model)


def test_a_full_disk_costs_a_warning(watched, path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    watched.then = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        computes(watched.artifact(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "not kept for the next time" in watched.warned[0]
    assert not list((watched.settings.folder / "entries").glob("*"))


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/cache"])
def test_a_place_that_cannot_be_is_no_cache(path, place):
    watched = Watched(Path(place))
    computes(watched.artifact(path))
    assert "not kept" in watched.warned[0]


@pytest.mark.parametrize("inner", ["", "entries", "files", "locks"])
@pytest.mark.parametrize(("mode", "whose"), [(0o777, "everybody"), (0o770, "its group")])
def test_a_folder_that_others_write_to_is_no_cache(tmp_path, inner, mode, whose):
    place = tmp_path / inner
    place.mkdir(exist_ok=True)
    place.chmod(mode)
    with pytest.raises(StorageError, match=f"{place}: it is writable for {whose}"):
        Store(tmp_path, 0).open()
    place.chmod(0o755)
    Store(tmp_path, 0).open()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("inner", ["", "entries"])
def test_a_folder_of_another_user_s_is_no_cache(tmp_path, inner):
    place = tmp_path / inner
    place.mkdir(exist_ok=True)
    os.chown(place, 65534, -1)
    with pytest.raises(StorageError, match=f"{place}: it belongs to another user"):
        Store(tmp_path, 0).open()


def test_the_cache_s_folders_are_this_user_s_alone(tmp_path):
    before = os.umask(0)
    try:
        Store(tmp_path / "cache", 0).open()
    finally:
        os.umask(before)
    for place in (tmp_path / "cache", *(tmp_path / "cache").iterdir()):
        assert place.stat().st_mode & 0o777 == 0o700


PROGRAM = """
import sys, numpy as np
import farrier
session = farrier.InferenceSession(sys.argv[1])
print(float(session.run(None, {"x": np.ones((2, 600), np.float32)})[0].sum()))
"""


def started(path, folder, program=PROGRAM, stderr=None):
    environment = {**os.environ, "FARRIER_CACHE": str(folder)}
    action = "default" if stderr else "error"
    command = [sys.executable, "-W", action, "-c", textwrap.dedent(program), str(path)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=stderr, text=True)


def test_two_processes_that_miss_at_once_both_compute(tmp_path, path):
    running = [started(path, tmp_path / "cache", stderr=subprocess.DEVNULL) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert outputs[0] == outputs[1] != ""
    assert len(list((tmp_path / "cache" / "entries").glob("*.farrier"))) == 1


def test_nobody_waits_for_a_process_that_was_killed(tmp_path, path):
    """The process that holds the lock of an entry is killed while another waits for it."""
    holder = started(
        path,
        tmp_path / "cache",
        """
        import sys, time
        from pathlib import Path
        from farrier.cache.cache import Cache, Request
        from farrier.cache.settings import CacheSettings
        from farrier.options import CompileOptions
        def compile(model, warn):
            print("compiling", flush=True)
            time.sleep(600)
        request = Request(Path(sys.argv[1]), CompileOptions(), {})
        Cache(CacheSettings.from_environment(), print).artifact(request, compile)
        """,
    )
    assert holder.stdout.readline() == "compiling\n"
    waiting = started(path, tmp_path / "cache", stderr=subprocess.PIPE)
    line = waiting.stderr.readline()
    (lock,) = (tmp_path / "cache" / "locks").iterdir()
    assert f"holds {lock}" in line
    assert "FARRIER_CACHE=off" in line
    assert waiting.poll() is None
    holder.kill()
    holder.communicate()
    assert waiting.communicate(timeout=60)[0]


def test_one_makes_an_entry_at_a_time(tmp_path):
    store = Store(tmp_path, 0)
    seen = []

    def make(number):
        with store.making("key", print):
            seen.append(number)
            time.sleep(0.2)
            seen.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    with store.making("another", pytest.fail):
        pass
    for thread in threads:
        thread.join()
    assert seen[::2] == seen[1::2]


def test_the_key_says_what_makes_code_differ(monkeypatch):
    options = CompileOptions()
    keys = {
        key.entry_key("c", options, {}),
        key.entry_key("d", options, {}),
        key.entry_key("c", options, {"batch": 1}),
        key.entry_key("c", dataclasses.replace(options, seed=1), {}),
        key.entry_key("c", dataclasses.replace(options, threads=77), {}),
    }
    monkeypatch.setattr(key, "compiler_stamp", lambda: "another compiler")
    keys.add(key.entry_key("c", options, {}))
    keys.add(key.entry_key("c", dataclasses.replace(options, cores=1), {}))  # the same code
    assert len(keys) == 6


def test_the_compiler_s_digest_is_that_of_its_files_contents(tmp_path, monkeypatch):
    """Whenever and wherever they were written."""
    import farrier

    digests = []
    for text, time_s in (("one", 1), ("one", 2), ("two", 2)):
        (tmp_path / "code.py").write_text(text)
        os.utime(tmp_path / "code.py", (time_s, time_s))
        with monkeypatch.context() as patch:
            patch.setattr(farrier, "__path__", [str(tmp_path)])
            digests.append(key._read_digest.__wrapped__())
    assert digests[0] == digests[1] != digests[2]


def test_of_threads_that_ask_at_once_one_reads_the_compiler_s_files(monkeypatch):
    readers, many = [], threading.Barrier(8)
    files_of = key._files

    def slowly(folder):
        readers.append(folder)
        time.sleep(0.05)
        return files_of(folder)

    def ask():
        many.wait()
        key.compiler_digest()

    monkeypatch.setattr(key, "_read_digest", functools.cache(key._read_digest.__wrapped__))
    monkeypatch.setattr(key, "_files", slowly)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([folder for folder in readers if os.path.basename(folder) == "farrier"]) == 1


def test_the_compiler_s_stamp_changes_with_its_files(tmp_path, monkeypatch):
    import farrier

    (tmp_path / "code.py").write_text("one")
    (tmp_path / ".#code.py").symlink_to("nobody@nowhere.1")  # Editors lock a file like this.
    monkeypatch.setattr(farrier, "__path__", [str(tmp_path)])
    before = key.compiler_stamp.__wrapped__()
    (tmp_path / "code.py").write_text("three")
    assert key.compiler_stamp.__wrapped__() != before


@pytest.mark.parametrize("name", ["ml_dtypes", "xgboost-cpu", "llvmlite"])
def test_the_compiler_s_stamp_changes_with_what_makes_code(monkeypatch, name):
    version = importlib.metadata.version
    before = key.compiler_stamp.__wrapped__()
    other = {name: "0.0.1"}
    monkeypatch.setattr(
        importlib.metadata, "version", lambda package: other.get(package) or version(package)
    )
    assert key.compiler_stamp.__wrapped__() != before


def test_the_compiler_s_stamp_changes_with_the_templates_that_are_installed(monkeypatch):
    before = key.compiler_stamp.__wrapped__()
    monkeypatch.setattr(plugins, "declared", lambda: ("mine 1.0 farrier.templates mine:TEMPLATE",))
    assert key.compiler_stamp.__wrapped__() != before


def test_settings(monkeypatch):
    read = CacheSettings.from_environment
    assert read({"XDG_CACHE_HOME": "/x"}) == CacheSettings(Path("/x/farrier"), DEFAULT_BYTES)
    assert read({"FARRIER_CACHE": "/y", "FARRIER_CACHE_BYTES": "5"}) == CacheSettings(Path("/y"), 5)
    assert read({"FARRIER_CACHE": "off"}).folder is None
    assert str(read({}).folder).endswith("/.cache/farrier")
    with pytest.raises(UsageError, match="FARRIER_CACHE_BYTES is '8G'"):
        read({"FARRIER_CACHE_BYTES": "8G"})


def test_every_variable_is_documented_with_its_default():
    root = Path(__file__).parents[2]
    page = (root / "docs/guide/onnxruntime.md").read_text()
    rows = dict(re.findall(r"^\| `(FARRIER_[A-Z_]+)` \| `([^`]*)` *\|", page, re.MULTILINE))
    source = (root / "compiler/farrier/cache/settings.py").read_text()
    assert set(rows) == set(re.findall(r'"(FARRIER_[A-Z_]+)"', source))
    read = CacheSettings.from_environment(rows)
    assert read == CacheSettings.from_environment({})
