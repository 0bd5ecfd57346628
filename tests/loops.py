"""A model whose loop runs any number of iterations, such as 2^62."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ENDLESS = 1 << 62


def loop(trips: int) -> bytes:
    """`y` = `x` + `trips`, f32[4], one by one."""
    node, info = helper.make_node, helper.make_tensor_value_info
    floats, flag = TensorProto.FLOAT, TensorProto.BOOL
    body = helper.make_graph(
        [node("Add", ["a", "one"], ["b"]), node("Identity", ["go"], ["on"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", flag, []), info("a", floats, [4])],
        [info("on", flag, []), info("b", floats, [4])],
    )
    graph = helper.make_graph(
        [node("Loop", ["trips", "", "x"], ["y"], body=body)],
        "loop",
        [info("x", floats, [4])],
        [info("y", floats, [4])],
        [
            numpy_helper.from_array(np.array(trips, np.int64), "trips"),
            numpy_helper.from_array(np.array(1, np.float32), "one"),
        ],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())
