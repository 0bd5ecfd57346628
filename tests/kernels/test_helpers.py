"""Kernels compiled in other processes are those compiled here, and their failures are told."""

import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper as make
from onnx import numpy_helper

from farrier.errors import CompilerError
from farrier.importer import import_model
from farrier.kernels import Helpers, helpers_for, lowered
from farrier.kernels import helpers as helpers_module
from farrier.kernels.choose import choose_defaults
from farrier.partition import extract_tasks
from farrier.passes import Settings, optimize
from farrier.progress import ignore
from farrier.space import Space
from farrier.targets import parse_target
from farrier.targets.cpu.codegen.link import link

_LAYERS = 3
_THREADS = 2


@pytest.fixture(scope="module")
def target():
    return parse_target("host")


@pytest.fixture(scope="module")
def choices(target):
    """Layers of open rows and odd widths, each a kernel of its own, and a sort."""
    rng = np.random.default_rng(0)
    widths = [5 + 3 * layer for layer in range(_LAYERS + 1)]
    weights = [
        rng.standard_normal(shape).astype(np.float32) for shape in itertools.pairwise(widths)
    ]
    nodes = [
        node
        for n in range(_LAYERS)
        for node in (
            make.make_node("MatMul", [f"x{n}", f"w{n}"], [f"p{n}"]),
            make.make_node("Softmax", [f"p{n}"], [f"x{n + 1}"]),
        )
    ]
    nodes.append(make.make_node("TopK", [f"x{_LAYERS}", "k"], ["values", "places"]))
    graph = make.make_graph(
        nodes,
        "layers",
        [make.make_tensor_value_info("x0", onnx.TensorProto.FLOAT, ["rows", widths[0]])],
        [
            make.make_tensor_value_info("values", onnx.TensorProto.FLOAT, ["rows", 3]),
            make.make_tensor_value_info("places", onnx.TensorProto.INT64, ["rows", 3]),
        ],
        [numpy_helper.from_array(array, f"w{n}") for n, array in enumerate(weights)]
        + [numpy_helper.from_array(np.array([3]), "k")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    imported = import_model(model.SerializeToString(), {"x0": ("rows:1..64", widths[0])}, ())
    graph = optimize(imported.graph, Settings(target, _THREADS))
    tasks, program = extract_tasks(graph)
    return choose_defaults(tasks, program.calls, target, _THREADS, ignore)


@pytest.fixture(scope="module")
def build_inputs(choices):
    return lowered(choices, here=False)


def _wait_until_ready(helpers):
    for one in helpers._helpers:
        assert one.is_ready.wait(60)


def test_kernels_are_the_same_whoever_compiles_them(build_inputs, target):
    with Helpers(0, target, _THREADS) as nobody:
        alone = nobody.compile(build_inputs)
    with Helpers(1, target, _THREADS) as helpers:
        _wait_until_ready(helpers)
        together = helpers.compile(build_inputs)
    assert len(build_inputs) > _LAYERS
    assert together == alone
    assert any(one.dims for one in together.interfaces.values())


def test_loops_that_are_there_are_those_compiled(choices, build_inputs, target, monkeypatch):
    """What was lowered to be read is not lowered once more, and is the same code."""
    with Helpers(0, target, _THREADS) as nobody:
        wanted = nobody.compile(build_inputs)
    here = lowered(choices, here=True)
    assert [one.loops.name for one in here.values()] == [one.name for one in build_inputs.values()]
    with Helpers(1, target, _THREADS) as helpers:
        _wait_until_ready(helpers)
        monkeypatch.setattr(Space, "build", _refuse)
        assert helpers.compile(here) == wanted


def _refuse(*_):
    raise AssertionError("a kernel is lowered twice")


def test_an_error_in_a_helper_is_raised_here(build_inputs, target):
    key, *_ = build_inputs
    wrong = dataclasses.replace(build_inputs[key], decisions={"nothing": 1})
    with Helpers(1, target, _THREADS) as helpers:
        _wait_until_ready(helpers)
        with pytest.raises(CompilerError, match="nothing"):
            helpers.compile({**{k: c for k, c in build_inputs.items() if k != key}, key: wrong})


def test_a_helper_that_does_not_start_is_not_waited_for(build_inputs, target, monkeypatch):
    monkeypatch.setattr(helpers_module, "_BOOTSTRAP", "raise SystemExit")
    with Helpers(1, target, _THREADS) as helpers:
        assert helpers.compile(build_inputs).interfaces.keys() == build_inputs.keys()


def test_no_room_for_processes_is_no_error(build_inputs, target, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(helpers_module.subprocess, "Popen", refuse)
    with Helpers(2, target, _THREADS) as helpers:
        assert helpers.compile(build_inputs).interfaces.keys() == build_inputs.keys()


def test_a_helper_that_dies_is_named(build_inputs, target, monkeypatch):
    dying = (
        "import json, os, socket, sys; sys.path[:] = json.loads(sys.argv[1]);"
        "from farrier_device import wire; sock = socket.socket(fileno=int(sys.argv[2]));"
        "wire.send(sock, {{}}); wire.receive(sock); os.kill(os.getpid(), 11)"
    )
    monkeypatch.setattr(helpers_module, "_BOOTSTRAP", dying)
    with Helpers(1, target, _THREADS) as helpers:
        _wait_until_ready(helpers)
        with pytest.raises(CompilerError, match="killed by SIGSEGV"):
            helpers.compile(build_inputs)


def test_small_models_and_lone_cores_get_no_help(monkeypatch):
    monkeypatch.setattr(helpers_module.os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert [helpers_for(nodes) for nodes in (0, 10, 40, 500, 5000)] == [0, 0, 1, 2, 2]
    monkeypatch.setattr(helpers_module.os, "sched_getaffinity", lambda _: {3})
    assert helpers_for(500) == 0


def test_kernels_that_were_begun_are_those_that_are_asked_for(build_inputs, target):
    """One whose decisions change meanwhile is made anew, whoever shared its module."""
    key = next(key for key, one in build_inputs.items() if len(one.space.candidates()) > 1)
    space = build_inputs[key].space
    rows = space.candidates()
    other = next(d for d in map(space.decisions, rows) if d != build_inputs[key].decisions)
    changed = {**build_inputs, key: dataclasses.replace(build_inputs[key], decisions=other)}
    with Helpers(0, target, _THREADS) as nobody:
        wanted = nobody.compile(changed)
    with Helpers(1, target, _THREADS) as helpers:
        _wait_until_ready(helpers)
        helpers.begin(build_inputs)
        made = helpers.compile(changed)
    assert made.interfaces == wanted.interfaces
    link(
        made.objects, [build_input.name for build_input in build_inputs.values()]
    )  # none is there twice
