"""compile --sign, verify-signature and inspect; `farrier keys` of the farm."""

from __future__ import annotations

import struct
import zipfile

import pytest
from typer.testing import CliRunner

from farrier.artifact.signature import SigningKey
from farrier_farm.commands import keys


@pytest.fixture(scope="module")
def key():
    return SigningKey.new()


@pytest.fixture
def signed(farrier, mlp, key, tmp_path):
    (tmp_path / "key.pem").write_bytes(key.pem)
    words = ["--no-verify", "--cores", "1", "--sign", "key.pem", "-o", "signed.farrier"]
    done = farrier("compile", mlp, *words)
    assert done.returncode == 0, done.stderr
    return tmp_path / "signed.farrier"


@pytest.mark.long
def test_who_signed_an_artifact_is_told_and_checked(farrier, signed, key, mlp, tmp_path):
    printed = farrier("verify-signature", signed, "--trust", str(key.public))
    assert printed.returncode == 0, printed.stderr
    assert f"signed by {key.public.fingerprint}, 8 files" in printed.stdout
    assert "no key is trusted" in farrier("verify-signature", signed).stdout
    trusted = {"FARRIER_TRUST": str(key.public)}
    output = farrier("inspect", signed, **trusted).stdout
    assert output.splitlines()[-1] == f"signed by {key.public.fingerprint}"
    assert "input: x f32[" in output
    foreign = {"FARRIER_TRUST": str(SigningKey.new().public)}
    for words in (["verify-signature"], ["inspect"], ["run"], ["profile"], ["bench"]):
        done = farrier(*words, signed, **foreign)
        assert done.returncode == 7
        assert "FARRIER_TRUST names" in done.stderr
    data = bytearray(signed.read_bytes())
    data[_middle_of_largest_file(signed)] ^= 1
    (tmp_path / "damaged.farrier").write_bytes(data)
    assert farrier("verify-signature", "damaged.farrier").returncode == 7
    # A model that is compiled now needs no signature.
    assert farrier("bench", mlp, "--rounds", "1", **trusted).returncode == 0


def _middle_of_largest_file(artifact):
    """Return the offset of a byte that is signed: the padding of the container is not."""
    with zipfile.ZipFile(artifact) as archive:
        largest = max(archive.infolist(), key=lambda info: info.compress_size)
    header = artifact.read_bytes()[largest.header_offset :]
    name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
    start = largest.header_offset + 30 + name_bytes + extra_bytes
    return start + largest.compress_size // 2


@pytest.mark.long
def test_what_is_unsigned_is_told(farrier, mlp):
    assert farrier("compile", mlp, "--no-verify", "--cores", "1").returncode == 0
    artifact = mlp.with_suffix(".farrier")
    lines = farrier("inspect", artifact).stdout.splitlines()
    assert any(line.startswith("code: code/model.so of the kind elf, 0.0") for line in lines)
    assert lines[-1] == "unsigned"
    assert '"signed_by": null' in farrier("inspect", artifact, "--json").stdout
    done = farrier("verify-signature", artifact)
    assert (done.returncode, "is not signed" in done.stderr) == (7, True)
    # An artifact is recognized by its content, whatever its name is.
    renamed = artifact.rename(mlp.with_name("model.v2"))
    assert farrier("inspect", renamed).stdout.splitlines()[-1] == "unsigned"
    with zipfile.ZipFile(mlp.with_name("arrays.npz"), "w") as archive:
        archive.writestr("a.npy", b"")
    shown = farrier("inspect", mlp.with_name("arrays.npz")).stdout
    assert "the zip archive is not a .pt2 file" in shown


@pytest.mark.long
def test_a_key_that_cannot_be_used_is_told_before_anything_is_compiled(farrier, mlp, tmp_path):
    (tmp_path / "key.pem").write_text("nothing")
    for words, says in [("key.pem", "not a private key of Ed25519"), ("none", "cannot be read")]:
        done = farrier("compile", mlp, "--sign", words)
        assert done.returncode == 2
        assert says in done.stderr
        assert "openssl genpkey" in done.stderr


def test_keys_of_a_farm_are_shown_and_rotated(tmp_path):
    def run(*words):
        done = CliRunner().invoke(keys, [*words, "--home", str(tmp_path)])
        assert done.exit_code == 0, done.output
        return done.output

    first = run("show").split()[0]
    assert run("show", "--pem").startswith("-----BEGIN PUBLIC KEY-----")
    second = run("rotate").split()[0]
    shown = [line.split() for line in run("show").splitlines()]
    assert [line[0] for line in shown] == [second, first]
    assert [line[2:] for line in shown] == [[], ["retired"]]
