"""The packages in `examples/`, from their entry points to tuned, verified, running models."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from farrier.records import Context, FileRecords
from farrier.targets import parse_target
from tests.packages import MAIN
from tests.templates.conftest import EXAMPLES, product

MATMUL, INTRINSIC = EXAMPLES / "template_matmul", EXAMPLES / "template_intrinsic"
needs_fma = pytest.mark.skipif(
    "fma" not in parse_target("host").required_features, reason="an instruction of x86-64"
)


def tuned(python, folder, package, trials):
    """The model tuned by the command where the package is installed: the artifact, and the records
    of its kernels alone."""
    said = python(
        MAIN,
        *("compile", "m.onnx", "--trials", trials, "--records", "r.jsonl", "-o", "m.farrier"),
        packages=[package],
    )
    assert "verified on local" in said
    records = [r for r in FileRecords(folder / "r.jsonl") if r.context is Context.ALONE]
    return farrier.load(folder / "m.farrier"), records


def test_a_product_is_tuned_by_the_template_and_the_built_in_rule(python, tmp_path):
    expected = product(tmp_path / "m.onnx", np.float32, 48, 64, 80, relu=True)
    artifact, records = tuned(python, tmp_path, MATMUL, 24)
    ran = {record.made_by for record in records if record.samples_ns}
    assert {(rule.name, rule.version) for rule in ran} >= {("template.dense_product", 1)}
    assert {rule.name for rule in ran} == {"template.dense_product", "register_tile"}
    mine = [record for record in records if record.rule == "template.dense_product"]
    assert all(name.startswith("dense_product.") for record in mine for name in record.knobs)
    assert all("compute_at" in record.trace for record in mine)
    assert not [record for record in records if not record.samples_ns]
    (kernel,) = artifact.manifest.kernels
    assert kernel.rule in {rule.name for rule in ran}
    (y,) = artifact.run({"x": np.load(tmp_path / "x.npy")}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@needs_fma
def test_an_intrinsic_and_its_template_compute_a_product_of_doubles(python, tmp_path):
    expected = product(tmp_path / "m.onnx", np.float64, 48, 64, 96)
    artifact, records = tuned(python, tmp_path, INTRINSIC, 12)
    mine = [record for record in records if record.rule == "template.double_product"]
    assert len({record.decisions for record in mine if record.samples_ns}) > 1
    assert all("tensorize" in record.trace for record in mine)
    (kernel,) = artifact.manifest.kernels
    assert kernel.rule == "template.double_product"
    (y,) = artifact.run({"x": np.load(tmp_path / "x.npy")}).values()
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def test_its_records_are_of_a_known_rule_where_it_is_installed(python):
    code = (
        "from farrier.model_tuning.known_rules import known_rules; "
        "print({rule.name: rule.version for rule in known_rules()}.get('template.dense_product'))"
    )
    assert python(code, packages=[MATMUL]).strip() == "1"
    assert python(code).strip() == "None"
