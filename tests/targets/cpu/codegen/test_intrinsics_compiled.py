"""A tensorized nest, compiled: the intrinsic's own code computes what its semantics say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from farrier.ir.expr import MemoryScope
from farrier.ir.run_loops import run_loops
from farrier.ir.types import Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule
from farrier.targets.cpu.codegen.emit import emit_function
from tests.lowering import finalize
from tests.schedule.programs import inputs_of, matmul
from tests.targets.cpu.codegen.differential import run_compiled


@pytest.mark.parametrize("scope", [MemoryScope.REGISTER, MemoryScope.LOCAL])
@pytest.mark.parametrize(
    ("name", "lanes"), [("avx512_broadcast_fma", 16), ("avx2_broadcast_fma", 8)]
)
def test_a_tensorized_matmul(target, name, lanes, scope):
    if lanes * 32 > target.vector_bits:
        pytest.skip("this machine has no such vectors")
    program = matmul(3, 32, 5)
    s = Schedule(to_loops(program))
    s.cache_write("y", "acc")
    s.split("y_n", lanes, "y_vec", "y_lane")
    s.compute_at("acc", "y_vec")
    s.set_scope("acc", scope)
    s.reorder("acc_k", "acc_m", "acc_n")
    packed = Layout((PhysicalDim(1, lanes), PhysicalDim(0), PhysicalDim(1, 1, lanes)))
    s.transform_layout("w", packed)
    s.tensorize("acc_n", name)
    s.vectorize("acc_init_n")
    s.vectorize("y_lane")
    function = finalize(s.function)
    inputs = inputs_of(program)
    assert re.search(rf"@llvm.fma.v{lanes}f32", emit_function(function, target))
    expected = run_loops(to_loops(program), inputs)
    np.testing.assert_allclose(run_compiled(function, inputs)["y"], expected["y"], rtol=1e-5)
