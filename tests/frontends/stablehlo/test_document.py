"""The document on a StableHLO module, and the names in it."""

import json

from farrier.frontends.onnx.model.file import Model
from farrier.frontends.registry import frontend_of
from tests.frontends.stablehlo.writer import module


def document(text):
    model = Model.of_bytes(text.encode())
    return json.loads(frontend_of(model).inspection(model).to_json())


def test_names_come_from_the_paths_of_jax():
    text = module("x:f?x3 w:f?x3", "y = add x w : f?x3 f?x3 -> f?x3", returns="y:f?x3 w:f?x3")
    text = text.replace('loc("w")', "loc(\"params['Dense_0']['kernel']\")")
    infos = 'res_attrs = [{jax.result_info = "result[\'y\']"}, {jax.result_info = "result"}]'
    dims = 'arg_attrs = [{farrier.dims = "batch, 3"}, {farrier.dims = "batch, 3"}]'
    text = text.replace('sym_name = "main"', f'{dims}, {infos}, sym_name = "main"')
    read = document(text)
    assert [each["name"] for each in read["inputs"]] == ["x", "params.Dense_0.kernel"]
    assert [each["name"] for each in read["outputs"]] == ["y", "output_1"]
    assert [each["name"] for each in read["open_dims"]] == ["batch"]
    assert read["format"] == "StableHLO"
    assert read["operators"][0]["op"] == "stablehlo.add"
    assert len(read["graph"]["nodes"]) == 5
    assert read["problems"] == []


def test_what_does_not_compile_is_a_problem_of_the_document():
    read = document(module("x:f2", "y = rng_bit_generator x : f2 -> f2", returns="y:f2"))
    assert not read["operators"][0]["supported"]
    assert read["problems"][0]["code"] == "unsupported-operator"
