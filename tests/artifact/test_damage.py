"""Damaged artifacts: an error names the damage and a way out, wherever it is."""

from __future__ import annotations

import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

import farrier
from farrier.artifact import container
from farrier.artifact.code import PROGRAM
from farrier.errors import ArtifactError
from farrier.runtime.artifact import MANIFEST, PARAMS, load_mapped
from farrier_device.program import Program, Wait, program_to_json

PATH = "code/model.so"
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """An artifact of relu(x w)."""
    older = Path(__file__).parent / "older" / "format-1-static.farrier"
    return load_mapped(older).save(tmp_path_factory.mktemp("whole") / "a.farrier")


@pytest.fixture
def rewritten(path, tmp_path):
    """Return a function that writes a copy with other members, and with a changed manifest."""

    def write(change=lambda manifest: None, *, without=(), **members):
        with zipfile.ZipFile(path) as archive:
            whole = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(whole[MANIFEST])
        change(manifest)
        params = whole.pop(PARAMS)
        changed = {**whole, MANIFEST: json.dumps(manifest).encode(), **members, PARAMS: params}
        target = tmp_path / "changed.farrier"
        with target.open("wb") as file:
            kept = {name: data for name, data in changed.items() if name not in without}
            container.write(file, kept)
        return target

    return write


def refused(path, says):
    with pytest.raises(ArtifactError, match=says) as caught:
        farrier.load(path).session()
    assert caught.value.hint
    return caught.value


def test_a_file_that_is_cut_anywhere_is_refused(path, tmp_path):
    data, cut = path.read_bytes(), tmp_path / "cut.farrier"
    for length in range(0, len(data), 5):
        cut.write_bytes(data[:length])
        assert refused(cut, "cut.farrier").hint


def test_a_byte_that_is_changed_anywhere_changes_nothing_or_is_refused(path, tmp_path):
    data, damaged = path.read_bytes(), tmp_path / "damaged.farrier"
    whole, rng = farrier.load(path), random.Random(7)
    for position in range(0, len(data), 3):
        changed = bytearray(data)
        changed[position] ^= rng.randrange(1, 256)
        damaged.write_bytes(changed)
        try:
            artifact = farrier.load(damaged)
            assert artifact._load_params().view == whole._load_params().view
        except ArtifactError:
            continue
        assert (artifact.manifest, artifact.code) == (whole.manifest, whole.code)


def test_bytes_that_are_lost_within_a_file_are_refused(path, tmp_path):
    data, rng = path.read_bytes(), random.Random(8)
    for _ in range(300):
        start = rng.randrange(len(data) - 1)
        stop = rng.randrange(start + 1, len(data))
        for middle in (b"", bytes(stop - start)):
            (tmp_path / "damaged.farrier").write_bytes(data[:start] + middle + data[stop:])
            try:
                artifact = farrier.load(tmp_path / "damaged.farrier")
            except ArtifactError:
                continue
            assert artifact.code == farrier.load(path).code


def test_code_objects_that_are_missing_or_changed_are_named(rewritten):
    refused(rewritten(without={PATH}), f"holds no {PATH}")
    refused(rewritten(**{PATH: b"\x7fELF"}), f"{PATH} in .* does not match its hash")
    refused(rewritten(without={"report.json"}), r"holds no report\.json")


def with_object(**fields):
    """Return a change of the manifest by which its code object has other fields."""
    return lambda manifest: manifest["code"][0].update(fields)


@pytest.mark.parametrize(
    "name", ["../a.so", "code/../a.so", "/code/a.so", "code/a/b.so", "a.so", ""]
)
def test_a_path_outside_of_the_folder_of_code_is_refused(rewritten, name):
    says = "not the path of a code object"
    assert repr(name) in str(refused(rewritten(with_object(path=name)), says))


@pytest.mark.parametrize("name", ["../evil", "code/../../evil", "/etc/evil"])
def test_a_file_that_would_be_unpacked_elsewhere_is_refused(rewritten, name):
    refused(rewritten(**{name: b""}), f"{name!r}, which lies outside of the archive")


def test_a_kind_that_the_backend_does_not_load_is_named(rewritten):
    says = (
        "code/model.so is a code object of the kind 'spirv', and the backend for x86_64 loads elf"
    )
    refused(rewritten(with_object(kind="spirv")), says)


def test_an_architecture_without_a_backend_is_named(rewritten):
    said = refused(rewritten(lambda m: m.update(architecture="vpu")), r"for x86-64-v3 \(vpu\)")
    assert "no installed backend is for vpu" in said.message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update(code=[]), "a model without code"),
        (lambda m: m.update(code=m["code"] * 2), "two code objects code/model.so"),
        (lambda m: m["backend"].pop("entry"), "part for CPUs .*: backend: it has no field 'entry'"),
        (lambda m: m["backend"].update(threads=-1), "part for CPUs .*: backend.threads: -1"),
        (lambda m: m["backend"].update(sockets=2), "part for CPUs .*: .*unknown field 'sockets'"),
        (lambda m: m["backend"].update(workspace="q * q"), "manifest is damaged: "),
        (lambda m: m["backend"].update(entry="nothing"), "no symbol 'nothing'"),
    ],
)
def test_damage_in_what_the_manifest_says_of_code_is_named(rewritten, change, says):
    refused(rewritten(change), says)


def test_a_library_that_is_none_is_named(rewritten):
    text = b"no library"
    file = rewritten(with_object(sha256=container.digest(text)), **{PATH: text})
    refused(file, f"{PATH} of the artifact cannot be loaded")


def test_a_program_is_held_to_its_hash_and_read(rewritten):
    program = Program((), (), (), {}, (), (Wait("gpu0"),))
    text = program_to_json(program).encode()

    def hashed(data):
        return lambda manifest: manifest["hashes"].update({PROGRAM: container.digest(data)})

    whole = rewritten(hashed(text), **{PROGRAM: text})
    assert farrier.load(whole).code.program == program
    refused(rewritten(hashed(text)), f"holds no {PROGRAM}")
    for other in (hashed(b""), lambda manifest: None):
        refused(rewritten(other, **{PROGRAM: text}), f"{PROGRAM} in .* does not match its hash")
    newer = text.replace(b'"wait"', b'"dream"')
    for data in (b"{", b"[]", newer):
        file = rewritten(hashed(data), **{PROGRAM: data})
        refused(file, f"{PROGRAM} is damaged, or of a newer Farrier: ")
