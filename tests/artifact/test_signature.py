"""Tests of signed artifacts: an artifact that was changed, in any file, or that a stranger signed
is not loaded."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.artifact import container, trust
from farrier.artifact.signature import SIGNATURE, PublicKey, Signature, SigningKey, statement
from farrier.artifact.trust import Trust
from farrier.errors import ArtifactError, UsageError
from farrier.runtime.artifact import MANIFEST, PARAMS, REPORT, check_whole

LIBRARY = "code/model.so"
X = np.arange(-3, 3, dtype=np.float32)
KEY = SigningKey.new()


def compiled(op):
    """y = x op w."""
    w = numpy_helper.from_array(np.full(6, 5, np.float32), "w")
    value = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [6]) for n in "xy"]
    node = helper.make_node(op, ["x", "w"], ["y"])
    graph = helper.make_graph([node], "net", value[:1], value[1:], [w])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return farrier.compile(model, verify=False, threads=1)


def unpacked(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(path, members):
    """The order is that of the container: the parameters last."""
    with path.open("wb") as file:
        container.write(file, {**members, PARAMS: members[PARAMS]})
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The members of a signed artifact of an addition, and of an unsigned one of a
    multiplication."""
    folder = tmp_path_factory.mktemp("signed")
    adds = compiled("Add")
    adds.sign(KEY.sign)
    paths = [adds.save(folder / "a.farrier"), compiled("Mul").save(folder / "m.farrier")]
    return [unpacked(path) for path in paths]


@pytest.fixture
def trusted(monkeypatch):
    monkeypatch.setenv("FARRIER_TRUST", str(KEY.public))


def swapped(members, others):
    """With the library of others, and a manifest that has its hash."""
    manifest = json.loads(members[MANIFEST])
    manifest["code"] = json.loads(others[MANIFEST])["code"]
    return {**members, LIBRARY: others[LIBRARY], MANIFEST: json.dumps(manifest).encode()}


def signed_by(members, key, changed=False):
    """Signed by another key; `changed`: with its list of files alone put right."""
    files = {n: container.digest(data) for n, data in members.items() if n != SIGNATURE}
    signature = key.sign(files)
    if changed:
        genuine = Signature.of_json(members[SIGNATURE])
        signature = Signature(files, genuine.key, genuine.signature)
    return {**members, SIGNATURE: signature.to_json().encode()}


def test_a_swapped_library_with_new_hashes_does_not_run(files, tmp_path, trusted):
    adds, multiplies = files
    path = packed(tmp_path / "a.farrier", adds)
    np.testing.assert_array_equal(farrier.load(path).run({"x": X})["y"], X + 5)
    evil = swapped(adds, multiplies)
    for members, says in [
        (evil, f"code/model.so and manifest.json of {path} are not what {KEY.public.fingerprint}"),
        (signed_by(evil, KEY, changed=True), f"signature of {path} is not one by"),
        (signed_by(evil, SigningKey.new()), "FARRIER_TRUST names"),
        ({n: d for n, d in evil.items() if n != SIGNATURE}, "is not signed, and FARRIER_TRUST"),
    ]:
        packed(path, members)
        with pytest.raises(ArtifactError, match=says) as caught:
            farrier.load(path)
        assert caught.value.hint


def test_what_is_signed_and_was_changed_is_refused_though_nobody_is_trusted(files, tmp_path):
    adds, multiplies = files
    unsigned = {n: d for n, d in swapped(adds, multiplies).items() if n != SIGNATURE}
    path = packed(tmp_path / "a.farrier", unsigned)
    np.testing.assert_array_equal(farrier.load(path).run({"x": X})["y"], X * 5)  # as ever
    assert farrier.load(path).signature is None
    foreign = SigningKey.new()
    packed(path, signed_by(adds, foreign))
    assert farrier.load(path).signature.key == foreign.public
    for members in (swapped(adds, multiplies), signed_by(unsigned | adds, KEY, changed=True)):
        broken = {**members, REPORT: b"{}"}
        with pytest.raises(ArtifactError, match=r"not what|not one by"):
            farrier.load(packed(path, broken))


@pytest.mark.parametrize("how", ["alone", "with its hash"])
def test_swapped_weights_are_refused(files, tmp_path, trusted, how):
    adds = files[0]
    weights = np.full(len(adds[PARAMS]) // 4, 7, np.float32).tobytes()
    members = {**adds, PARAMS: weights}
    if how == "with its hash":
        manifest = json.loads(adds[MANIFEST])
        manifest["hashes"][PARAMS] = container.digest(weights)
        members[MANIFEST] = json.dumps(manifest).encode()
    path = packed(tmp_path / "a.farrier", members)
    with pytest.raises(ArtifactError, match=r"params\.bin"):
        farrier.load(path).session()
    with pytest.raises(ArtifactError, match=r"params\.bin"):
        check_whole(path, Trust.of_environment())


@pytest.mark.parametrize(
    "name", sorted({"calls.json", "graph.ir", "records.jsonl", REPORT, "schedules.json"})
)
def test_every_other_file_is_held_to_the_signature(files, tmp_path, trusted, name):
    path = packed(tmp_path / "a.farrier", {**files[0], name: files[0][name] + b" "})
    with pytest.raises(ArtifactError, match=f"{name} of {path} is not what"):
        farrier.load(path)
    added = packed(path, {**files[0], "more.txt": b""})
    with pytest.raises(ArtifactError, match=r"more\.txt of"):
        farrier.load(added)


def test_what_is_checked_is_what_runs(files, tmp_path, trusted):
    """The file that is put in the place of a loaded one changes nothing of it, or is refused."""
    adds, multiplies = files
    path = packed(tmp_path / "a.farrier", adds)
    artifact = farrier.load(path)
    packed(tmp_path / "evil", swapped(adds, multiplies)).replace(path)
    np.testing.assert_array_equal(artifact.run({"x": X})["y"], X + 5)
    artifact = farrier.load(packed(path, adds))
    packed(tmp_path / "evil", {**adds, PARAMS: bytes(len(adds[PARAMS]))}).replace(path)
    with pytest.raises(ArtifactError, match=r"params\.bin in .* does not match its hash"):
        artifact.run({"x": X})


def test_two_files_of_one_name_are_refused(files, tmp_path):
    path = packed(tmp_path / "a.farrier", files[0])
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(LIBRARY, files[1][LIBRARY])
    with pytest.raises(ArtifactError, match="two files of one name"):
        farrier.load(path)


def test_a_signature_of_a_newer_form_counts_for_nothing(files, tmp_path, monkeypatch):
    newer = json.dumps({**json.loads(files[0][SIGNATURE]), "format": 2}).encode()
    path = packed(tmp_path / "a.farrier", {**files[0], SIGNATURE: newer})
    assert farrier.load(path).signature is None
    monkeypatch.setenv("FARRIER_TRUST", str(KEY.public))
    with pytest.raises(ArtifactError, match="has format 2, and this Farrier reads 1"):
        farrier.load(path)
    for damaged in (b"", b"[]", b"{}", b'{"format": 1, "files": {}, "key": "x"}'):
        packed(path, {**files[0], SIGNATURE: damaged})
        with pytest.raises(ArtifactError, match="signature is damaged"):
            farrier.load(path)


def test_keys_come_from_texts_files_and_folders(tmp_path):
    keys = [SigningKey.new().public for _ in range(4)]
    (tmp_path / "one.pub").write_text(f"# of the farm\n\n{keys[0]}  {keys[0].fingerprint}  old\n")
    (tmp_path / "two.pem").write_text(keys[1].pem + keys[2].pem)
    (tmp_path / ".hidden").write_text("not a key")
    text = f"{keys[3]}, {tmp_path}"
    assert Trust.of_environment({"FARRIER_TRUST": text}).keys == frozenset(keys)
    assert Trust.of_environment({"FARRIER_TRUST": ""}) is Trust.of_environment({}) is None
    (tmp_path / "empty").mkdir()
    (tmp_path / "three.txt").write_text("ed25519:AAAA\n")
    for text, says in [
        ("ed25519:AAAA", "is not a key"),
        (keys[0].fingerprint, "cannot be read"),
        (str(tmp_path / "empty"), "which names no key"),
        (",", "which names no key"),
        (" ", "which names no key"),
        (str(tmp_path / "three.txt"), "is not a key"),
    ]:
        with pytest.raises(UsageError, match=f"FARRIER_TRUST .*{says}"):
            Trust.of_environment({"FARRIER_TRUST": text})


def test_without_the_package_nothing_is_trusted_unseen(files, tmp_path, monkeypatch):
    path = packed(tmp_path / "a.farrier", files[0])
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    assert farrier.load(path).signature.key == KEY.public
    monkeypatch.setenv("FARRIER_TRUST", str(KEY.public))
    with pytest.raises(UsageError, match="needs the package cryptography") as caught:
        farrier.load(path)
    assert caught.value.hint == "pip install 'farrier[trust]'"


def test_what_this_process_has_compiled_is_its_own(trusted, monkeypatch):
    with trust.own_artifacts():
        assert Trust.of_environment() is None
    assert Trust.of_environment().keys == {KEY.public}


def test_names_that_could_be_taken_for_others_are_not_signed():
    digest = "0" * 64
    assert statement({"b": digest, "a": digest}).splitlines()[1:] == [
        f"{digest}  a".encode(),
        f"{digest}  b".encode(),
    ]
    for name in ("", "a\nb", "../a", "a b", "code/../a", "code/", "code/a/b", "b/a", SIGNATURE):
        with pytest.raises(ValueError, match="cannot be signed"):
            KEY.sign({name: digest})
    with pytest.raises(ValueError, match="more than 1024"):
        KEY.sign({f"n{n}": digest for n in range(1025)})


@pytest.mark.skipif(
    not all(map(shutil.which, ("openssl", "jq", "unzip", "sha256sum"))), reason="tools are missing"
)
@pytest.mark.parametrize("changed", ["", LIBRARY, SIGNATURE])
def test_openssl_checks_it_as_the_page_says(files, tmp_path, changed):
    """With a key that openssl has made."""
    words = ["genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"]
    subprocess.run(["openssl", *words], check=True)
    key = SigningKey.of_pem((tmp_path / "key.pem").read_bytes())
    assert SigningKey.of_pem(key.pem).public == key.public
    (tmp_path / "farm.pem").write_text(key.public.pem)
    members = signed_by(files[0], key)
    if changed == LIBRARY:
        members[LIBRARY] = files[1][LIBRARY]
    elif changed:
        members = signed_by({**members, LIBRARY: files[1][LIBRARY]}, key, changed=True)
    packed(tmp_path / "model.farrier", members)
    page = (Path(__file__).parents[2] / "docs/guide/trust.md").read_text()
    first, *lines = re.search(r"^    farrier keys show --pem.*\n(    .*\n)+", page, re.M)[0].split(
        "\n"
    )
    assert first.endswith("# on the farm")
    script = "\n".join(line.removeprefix("    ") for line in lines)
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == (not changed), done.stdout + done.stderr


def test_keys_as_text():
    assert PublicKey.of_text(str(KEY.public)) == KEY.public
    assert len(KEY.public.fingerprint) == 32
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(UsageError, match="not a private key of Ed25519"):
            SigningKey.of_pem(pem)
