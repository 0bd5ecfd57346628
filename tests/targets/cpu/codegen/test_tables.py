"""Bytes looked up in tables: every entry, at any number of lanes, many at once or one by one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.ir.expr import Binary, BinaryOp, Buffer, ByteTable, Const, Load, Var
from farrier.ir.loop import Block, For, Function, LoopKind, Store
from farrier.ir.types import DType
from farrier.targets import Target, parse_target
from farrier.targets.cpu.codegen.emit import emit_function
from farrier_device.describe import describe
from tests.targets.cpu.codegen.differential import check

FEATURES = frozenset(describe().features)
_ENTRIES = np.random.default_rng(0).permutation(256).astype(np.uint8).tobytes()
_LOOKS_UP = dataclasses.replace(parse_target("x86-64-v4"), features=("avx512vbmi",))


def _function(indices: DType, entries: DType, lanes: int) -> Function:
    """y[i] = entries[x[i]] for 256 elements and a few more, `lanes` at once."""
    extent = 256 + lanes
    x, y = Buffer("x", indices, (extent,)), Buffer("y", entries, (extent,))

    def store(at: tuple) -> Store:
        return Store(y, at, ByteTable(_ENTRIES, entries, Load(x, at)))

    step = Binary(BinaryOp.MUL, Var("block"), Const(lanes, DType.I64))
    at = (Binary(BinaryOp.ADD, step, Var("lane")),)
    inner = For("lane", lanes, LoopKind.VECTORIZED, store(at))
    whole = extent // lanes
    loops = [For("block", whole, LoopKind.SERIAL, inner)]
    loops += [For("rest", extent, LoopKind.SERIAL, store((Var("rest"),)))] * (extent % lanes > 0)
    return Function("kernel", (x, y), Block(tuple(loops)))


@pytest.mark.parametrize("lanes", [1, 4, 16, 64, 128])
@pytest.mark.parametrize("entries", [DType.U8, DType.I8])
@pytest.mark.parametrize("indices", [DType.U8, DType.I8])
@pytest.mark.parametrize("target", [parse_target("host"), parse_target("x86-64-v2"), _LOOKS_UP])
def test_every_byte(indices: DType, entries: DType, lanes: int, target: Target) -> None:
    if not target.required_features <= FEATURES:
        pytest.skip(f"this machine lacks {', '.join(sorted(target.required_features - FEATURES))}")
    x = np.arange(256 + lanes).astype(np.uint8).view(indices.numpy)
    check(_function(indices, entries, lanes), {"x": x}, rtol=0, atol=0, target=target)


def test_a_vector_of_bytes_takes_two_permutations_of_a_machine_that_has_them() -> None:
    text = emit_function(_function(DType.U8, DType.U8, 16), _LOOKS_UP)
    assert text.count("call <64 x i8> @llvm.x86.avx512.vpermi2var") == 2
    one_by_one = emit_function(_function(DType.U8, DType.U8, 16), parse_target("x86-64-v4"))
    assert one_by_one.count("load i8") == 16
    assert one_by_one.count("private unnamed_addr constant [256 x i8]") == 1
