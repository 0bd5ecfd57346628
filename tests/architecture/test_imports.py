"""Tests of the imports: their cost, and the allowed directions."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLES = ("compiler", "farm", "rpc_device", "server", "worker")
HEAVY = {"onnx", "llvmlite", "xgboost", "httpx", "typer", "rich", "redis", "fastapi", "grpc"}


def _imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_farrier_imports_nothing_heavy():
    assert not _imported_by("import farrier; farrier.load") & HEAVY


def test_the_command_can_say_what_is_missing_before_it_imports_anything():
    assert not _imported_by("import farrier.cli.main") & (HEAVY | {"numpy"})


def test_a_verb_brings_what_it_needs_itself():
    brought = _imported_by("from farrier.cli.app import build; build()")
    assert not brought & ((HEAVY - {"typer", "rich"}) | {"numpy"})


def test_the_agent_needs_grpc_and_nothing_else():
    brought = _imported_by("import farrier_device.agent")
    assert not brought & ((HEAVY - {"grpc"}) | {"numpy", "farrier"})


def test_the_server_has_nothing_that_could_read_a_model():
    assert not _imported_by("import farrier_server.serve") & {"onnx", "llvmlite", "numpy"}


def test_a_supervisor_has_nothing_that_could_read_a_model():
    assert not _imported_by("import farrier_worker.supervisor") & {"onnx", "llvmlite", "numpy"}


SOURCES = [file for part in (*ROLES, "bench") for file in (ROOT / part).rglob("*.py")]
PICKLED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
# These functions of numpy pickle and unpickle objects unless `allow_pickle` forbids it; `savez` of
# the oldest numpy that Farrier supports has no such argument.
MUST_SAY = {"load", "save", "read_array", "write_array"}
NEVER = {"savez", "savez_compressed"}


def _pickles(source):
    """Yield the names in a source's code that pickle, or may."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                parts = {part for name in names for part in name.name.split(".")}
                yield from parts & PICKLED
            case ast.ImportFrom(module=str(module), names=names):
                imported = {*module.split("."), *(name.name for name in names)}
                yield from imported & PICKLED
                if module.partition(".")[0] == "numpy":
                    yield from imported & (MUST_SAY | NEVER)
            case ast.Attribute(attr=name) if name in NEVER and _is_of_numpy(node):
                yield name
            case ast.Call(func=ast.Attribute(attr=name) as function, keywords=keywords) if (
                name in MUST_SAY and _is_of_numpy(function)
            ):
                said = [ast.unparse(k.value) for k in keywords if k.arg == "allow_pickle"]
                if said != ["False"]:
                    yield name
            case ast.Constant(value=str(text)) if text in PICKLED:
                yield text  # It may be imported by name.


def _is_of_numpy(attribute):
    return ast.unparse(attribute).partition(".")[0] in ("np", "numpy")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import pickle", ["pickle"]),
        ("from multiprocessing.shared import pickle as p", ["pickle"]),
        ("import importlib; importlib.import_module('joblib')", ["joblib"]),
        ("np.load(path)", ["load"]),
        ("numpy.load(path, allow_pickle=True)", ["load"]),
        ("np.save(file, array, allow_pickle=maybe)", ["save"]),
        ("np.lib.format.read_array(file)", ["read_array"]),
        ("write = np.savez", ["savez"]),
        ("np.savez_compressed(file, allow_pickle=False)", ["savez_compressed"]),
        ("from numpy import load as get", ["load"]),
        ("np.load(path, allow_pickle=False)", []),
        ("np.save(file, array, allow_pickle=False)", []),
        ("json.load(file); artifact.save(path)", []),
    ],
)
def test_what_pickles_is_seen(source, names):
    assert list(_pickles(source)) == names


def test_nothing_unpickles():
    """Nor reads any other format of Python's that runs code, nor writes one."""
    assert len(SOURCES) > 330
    for file in SOURCES:
        assert not list(_pickles(file.read_text())), file
