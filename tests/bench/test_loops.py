"""Innermost loops in disassembled code, and what llvm-mca's model says of them."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from bench import loops

needs_llvm = pytest.mark.skipif(
    shutil.which("llvm-mca-22") is None, reason="llvm-mca-22 (Debian's llvm-22) is not installed"
)
TEXT = """\
0000000000000100 <first.body0>:
     100:      	mov	x8, #0x0
     104:      	ldr	q0, [x1], #0x10
     108:      	sdot	v1.4s, v0.16b, v2.4b[0]
     10c:      	sdot	v3.4s, v0.16b, v2.4b[1]
     110:      	sdot	v3.2s, v0.8b, v2.4b[1]
     114:      	b.lt	0x104 <first.body0+0x4>
     118:      	fmla	v1.4s, v0.4s, v2.s[0]
     11c:      	ret
0000000000000120 <second>:
     120:      	fmla	v1.4s, v0.4s, v2.s[0]
     124:      	cbnz	x1, 0x120 <second>
0000000000000128 <end>:
"""


def test_loops_know_what_they_multiply_by():
    summary = [
        (loop.function, loop.multiply_adds, loop.multiplies_by) for loop in loops.loops_in(TEXT)
    ]
    assert summary == [("first.body0", 2, "sdot"), ("second", 1, "fmla")]


def convolution(channels, outputs, taps):
    """One integer convolution of u8, whose zero point pads it."""
    rng = np.random.default_rng(channels)
    weights = rng.integers(-127, 128, (outputs, channels, taps, taps)).astype(np.int8)
    constants = {"w": weights, "z": np.array(7, np.uint8)}
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[taps // 2] * 4)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, (1, channels, 28, 28))
    initializers = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@needs_llvm
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize(("target", "cpu"), [("rpi5", "neoverse-n1"), ("graviton3", "neoverse-v1")])
def test_dot_products_of_bytes_reach_85_percent_of_their_peak(target, cpu, taps, tmp_path):
    """The loop with most of them, which whole tiles spend their time in."""
    artifact = farrier.compile(convolution(64, 128, taps), target=target, verify=False, threads=1)
    longest = max(loops.loops_of(artifact), key=lambda loop: loop.multiply_adds)
    assert longest.multiplies_by == {"rpi5": "sdot", "graviton3": "usmmla"}[target]
    assert loops.share_of_peak(longest, cpu) >= 0.85
