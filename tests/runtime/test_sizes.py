"""A session of a model whose sizes are known when it runs: one library, any size in range."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest

from farrier.artifact.code import CodeObject
from farrier.artifact.manifest import Manifest, TensorSpec
from farrier.errors import ArtifactError, InputMismatchError, MemoryLimitError
from farrier.ir.dim import dim, symbols
from farrier.ir.graph import Value
from farrier.ir.types import DType, TensorType
from farrier.options.shapes import NamedDim
from farrier.partition.addresses import Addresses, KernelCall
from farrier.partition.plan_memory import MemoryPlan, Place, Segment
from farrier.partition.program import Call, DriverProgram, Repeat, Slice
from farrier.runtime.artifact import Artifact
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import compile_text, link, support_object
from farrier.targets.cpu.codegen.entry import (
    ENTRY,
    emit_entry,
    emit_workspace_bytes,
)
from farrier.targets.cpu.part import WORKSPACE_BYTES, CpuPart

# y[i] = x[i] + k[i] on rows of two i64, by way of the workspace.
_KERNEL = """
define i32 @row(ptr %args, ptr %pool) {
  %x = load ptr, ptr %args
  %k.at = getelementptr ptr, ptr %args, i64 1
  %k = load ptr, ptr %k.at
  %y.at = getelementptr ptr, ptr %args, i64 2
  %y = load ptr, ptr %y.at
  %a = load <2 x i64>, ptr %x, align 8
  %b = load <2 x i64>, ptr %k, align 8
  %sum = add <2 x i64> %a, %b
  store <2 x i64> %sum, ptr %y, align 8
  ret i32 0
}
"""


@pytest.fixture(scope="module")
def artifact():
    target = parse_target("host")
    n = dim("s0", 1, 5000, 4)
    dims = tuple(symbols([n]))

    def rows(name, count):
        return Value(name, TensorType(DType.I64, (count, 2)))

    x, k = Place(Segment.INPUT, 0), Place(Segment.INPUT, 1)
    between, y = Place(Segment.WORKSPACE, 0, 64), Place(Segment.OUTPUT, 0)
    behind = Place(Segment.OUTPUT, 0, 16 * n)
    calls, places = {}, {"i": Place(Segment.WORKSPACE)}
    steps = []
    for step, wholes in enumerate(((x, k, between), (between, k, y), (between, x, behind))):
        names = [f"{step}.{position}" for position in range(len(wholes))]
        places |= {f"{name}.whole": place for name, place in zip(names, wholes, strict=True)}
        slices = tuple(Slice(rows(f"{name}.whole", n), rows(name, 1)) for name in names)
        at = tuple(Place(Segment.POINTER, pointer=name) for name in names)
        calls[names[-1]] = KernelCall("row", at)
        call = Call("row", (), (slices[-1].slice,), "")
        iteration = Value("i", TensorType(DType.I64, ()))
        steps.append(Repeat(n, None, None, iteration, (), slices[:-1], slices[-1:], (call,)))
    inputs = rows("x", n), rows("k", n)
    program = DriverProgram(inputs, (rows("y", 2 * n),), (), tuple(steps), {})
    assert program.dims == dims
    needed = 64 + 16 * n
    texts = (
        _KERNEL,
        emit_entry(program, Addresses(calls, places)).text,
        emit_workspace_bytes(MemoryPlan({}, {}, needed, needed, 0, {}), dims),
    )
    library = link([*(compile_text(text, target) for text in texts), support_object(target)])
    code = CodeObject("code/model.so", "elf", (ENTRY, WORKSPACE_BYTES), library)
    typical = ((4, 2), (8, 2))
    manifest = Manifest(
        name="rows",
        inputs=tuple(TensorSpec(name, "i64", ("s0", 2), typical[0]) for name in "xk"),
        outputs=(TensorSpec("y", "i64", ("2*s0", 2), typical[1]),),
        architecture=target.arch,
        machine=target.cpu,
        features=target.features,
        code=(code.file,),
        backend=CpuPart(target.triple, 1, 1, ENTRY, 64 + 16 * 4).to_json(),
        params_bytes=0,
        hashes={},
        tools={},
        kernels=(),
        dims=(NamedDim("batch", "s0", 1, 5000, 4),),
        sizes=(4,),
    )
    manifest = Manifest.from_json(manifest.to_json())
    return Artifact(manifest, {code.path: code.content}, memoryview(b""))


@pytest.mark.long
def test_any_size_in_range(artifact):
    """Memory grows as it must; outputs of an earlier call stay as they were."""
    kept = []
    for n in (4, 4, 1, 3000, 2, 2, 5000, 2):
        x, k = np.random.default_rng(n).integers(0, 99, (2, n, 2))
        kept.append((np.concatenate([x + 2 * k, 2 * x + k]), artifact.run({"x": x, "k": k})["y"]))
        gc.collect()
    for wanted, actual in kept:
        np.testing.assert_array_equal(actual, wanted)


def test_unaligned_and_foreign_arrays(artifact):
    x = np.arange(2 * 2 * 301).reshape(301, 4)[:, ::2]
    actual = artifact.run({"x": x, "k": x.tolist()})["y"]
    np.testing.assert_array_equal(actual, np.concatenate([3 * x, 3 * x]))


@pytest.mark.parametrize(
    ("x", "k", "message"),
    [
        ((0, 2), (0, 2), "input x has 0 at axis 0, and batch is 1 to 5000"),
        ((5001, 2), (5001, 2), "input x has 5001 at axis 0, and batch is 1 to 5000"),
        ((3, 2), (4, 2), "input k has 4 at axis 0, and elsewhere batch is 3"),
        ((3, 3), (3, 2), r"input x is int64\[3, 3\], the model takes int64\[3, 2\]"),
        ((), (3, 2), r"input x is int64\[\], the model takes int64"),
        ((3, 2, 1), (3, 2), r"input x is int64\[3, 2, 1\], the model takes int64\[3, 2\]"),
    ],
)
def test_shapes_that_do_not_fit(artifact, x, k, message):
    with pytest.raises(InputMismatchError, match=message):
        artifact.run({"x": np.zeros(x, np.int64), "k": np.zeros(k, np.int64)})
    ones = np.ones((3, 2), np.int64)
    np.testing.assert_array_equal(artifact.run({"x": ones, "k": ones})["y"], np.full((6, 2), 3))


@pytest.mark.parametrize("shape", ["s1", "s0 +", "__import__('os')", "(" * 500, "s0 / 2"])
def test_a_shape_that_is_no_extent(artifact, shape):
    bad = dataclasses.replace(artifact.manifest, outputs=(TensorSpec("y", "i64", (shape,), (1,)),))
    with pytest.raises(ArtifactError, match="manifest is damaged"):
        Manifest.from_json(bad.to_json())


def test_a_size_comes_in_steps(artifact):
    """The symbol counts steps of three rows; the library receives one row for each."""
    manifest = dataclasses.replace(
        artifact.manifest,
        inputs=tuple(TensorSpec(name, "i64", ("3*s0", 2), (12, 2)) for name in "xk"),
        dims=(NamedDim("rows", "s0", 1, 5000, 4, step=3),),
    )
    stepping = Artifact(manifest, artifact.members, memoryview(b""))
    x = np.arange(12).reshape(6, 2)
    actual = stepping.run({"x": x, "k": x})["y"]
    np.testing.assert_array_equal(actual, np.concatenate([3 * x[:2], 3 * x[:2]]))
    for count in (0, 7, 15003):
        x = np.zeros((count, 2), np.int64)
        with pytest.raises(InputMismatchError, match="rows is 3 to 15000 in steps of 3"):
            stepping.run({"x": x, "k": x})


def test_the_limit_holds_what_the_workspace_takes_and_not_what_it_takes_at_most(artifact):
    """The workspace takes 64 + 16 n bytes, the manifest declares more, and the output takes 32
    n."""
    part = {**artifact.manifest.backend, "workspace": "1000000*s0"}
    manifest = dataclasses.replace(artifact.manifest, backend=part)
    large = Artifact(manifest, artifact.members, memoryview(b""))
    x = np.ones((500, 2), np.int64)
    session = large.session(memory_bytes=64 + 48 * 500)
    np.testing.assert_array_equal(session.run({"x": x, "k": x})["y"], np.full((1000, 2), 3))
    more = np.ones((501, 2), np.int64)
    with pytest.raises(MemoryLimitError, match=f"needs {64 + 48 * 501} bytes"):
        session.run({"x": more, "k": more})
    np.testing.assert_array_equal(session.run({"x": x, "k": x})["y"], np.full((1000, 2), 3))
