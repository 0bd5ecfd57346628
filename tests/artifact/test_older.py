"""Artifacts of other versions: older ones run, what this version would misread is refused.

`older/` holds artifacts as earlier commits wrote them, of relu(x w) with x[2, 4] = 0, 1, … 7 and
w[4, 3] = k / 8 - 1/2, for x86-64:

    before-precision.farrier  729d3d4  format 1 as it began
    before-targets.farrier    a8232f0  nine fields later, x[n, 4]; targets were not yet descriptions
    format-1-open.farrier     b8508ce7 the last of format 1, x[n, 4]
    format-1-static.farrier   b8508ce7 likewise, x[2, 4]

`manifest-1.json` is a manifest of format 1 with a value for every field.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import zipfile
from pathlib import Path

import numpy as np
import pytest

import farrier
from farrier.artifact import container
from farrier.artifact.manifest import Manifest
from farrier.errors import ArtifactError
from farrier.runtime.artifact import MANIFEST, PARAMS, load_mapped
from tests.wire.forms import MANIFEST as WHOLE

FOLDER = Path(__file__).parent / "older"
OLDER = sorted(FOLDER.glob("*.farrier"))


def rewritten(path, change):
    """A copy whose manifest is changed."""
    with zipfile.ZipFile(OLDER[0]) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members[MANIFEST])
    change(manifest)
    params = members.pop(PARAMS)
    with path.open("wb") as file:
        changed = {**members, MANIFEST: json.dumps(manifest).encode(), PARAMS: params}
        container.write(file, changed)
    return path


def test_there_are_four():
    names = ["before-precision", "before-targets", "format-1-open", "format-1-static"]
    assert [path.stem for path in OLDER] == names


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_artifact_is_read_and_runs(path):
    artifact = farrier.load(path)
    assert artifact.manifest.format == 1
    assert artifact.manifest.precision == "f32"
    [code] = artifact.code.objects
    assert (code.path, code.kind, code.entries) == ("code/model.so", "elf", ("farrier_entry",))
    assert code.file in artifact.manifest.code
    if platform.machine() != "x86_64":
        with pytest.raises(ArtifactError, match="was compiled for x86-64-v"):
            artifact.session()
        return
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 8 - 0.5
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], np.maximum(x @ w, 0))
    if path.stem.endswith("open"):
        x = np.arange(400, dtype=np.float32).reshape(100, 4)
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], np.maximum(x @ w, 0))


def test_an_older_artifact_that_is_written_again_has_the_new_format(tmp_path):
    artifact = load_mapped(OLDER[-1])
    path = artifact.save(tmp_path / "again.farrier")
    again = farrier.load(path)
    assert again.manifest == dataclasses.replace(artifact.manifest, format=2)
    assert (again.code, again.calls) == (artifact.code, artifact.calls)
    with zipfile.ZipFile(path) as archive:
        assert "code/model.so" in archive.namelist()
        assert "model.so" not in archive.namelist()


def test_every_field_of_an_older_manifest_is_read():
    text = (FOLDER / "manifest-1.json").read_text()
    hashes = {"params.bin": "b" * 64}
    raw = json.loads(text)
    raw["hashes"].update(hashes)
    read = Manifest.from_json(json.dumps(raw))
    # Its kernels have no place of their own yet, as the last one of the whole manifest has.
    older = dataclasses.replace(WHOLE, kernels=WHOLE.kernels[:-1])
    assert dataclasses.replace(read, format=2) == older


@pytest.mark.parametrize("field", ["entry", "triple", "cpu", "threads", "max_threads", "hashes"])
@pytest.mark.parametrize("value", [None, [], {"a": 1}, -1])
def test_damage_in_a_field_that_has_moved_is_named(field, value):
    raw = json.loads((FOLDER / "manifest-1.json").read_text())
    for damaged in (raw | {field: value}, {n: v for n, v in raw.items() if n != field}):
        with pytest.raises(ArtifactError, match=f"manifest is damaged: .*{field}"):
            Manifest.from_json(json.dumps(damaged))


@pytest.mark.parametrize("number", [0, 3])
def test_another_format_is_refused_with_both_versions_and_the_way_out(tmp_path, number):
    def change(manifest):
        manifest["format"] = number
        manifest["tools"]["farrier"] = "7.3"

    with pytest.raises(ArtifactError) as caught:
        farrier.load(rewritten(tmp_path / "other.farrier", change))
    assert caught.value.args[0] == (
        f"the artifact of Farrier 7.3 has format {number}; "
        f"this Farrier, {farrier.__version__}, reads 1 and 2"
    )
    assert caught.value.hint == (
        "compile the model again with this one, or run the artifact with Farrier 7.3"
    )


def test_a_format_is_refused_where_nobody_says_who_made_it(tmp_path):
    def change(manifest):
        manifest["format"] = 3
        del manifest["tools"]

    with pytest.raises(ArtifactError, match="the artifact has format 3; this Farrier"):
        farrier.load(rewritten(tmp_path / "other.farrier", change))


@pytest.mark.parametrize("where", [lambda m: m, lambda m: m["inputs"][0]], ids=["top", "input"])
def test_what_a_newer_version_says_is_refused_unless_it_is_empty(tmp_path, where):
    def change(value):
        return lambda manifest: where(manifest).update(streams=value)

    for empty in (None, False, 0, "", [], {}):
        farrier.load(rewritten(tmp_path / "same.farrier", change(empty)))
    with pytest.raises(ArtifactError, match=r"of Farrier .*'streams'.*does not know") as caught:
        farrier.load(rewritten(tmp_path / "newer.farrier", change(["a"])))
    assert "damaged" not in str(caught.value)
