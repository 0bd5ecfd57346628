"""What an import brings along, and who may import whom."""

import re
import subprocess
import sys
from pathlib import Path

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


def test_the_agent_needs_grpc_and_nothing_else():
    brought = _imported_by("import farrier_device.agent")
    assert not brought & ((HEAVY - {"grpc"}) | {"numpy", "farrier"})


def test_the_server_has_nothing_that_could_read_a_model():
    assert not _imported_by("import farrier_server.serve") & {"onnx", "llvmlite", "numpy"}


def test_nothing_unpickles():
    """Nor reads any other format of Python's that runs code."""
    files = [file for role in ROLES for file in (ROOT / role).rglob("*.py")]
    assert len(files) > 300
    for file in files:
        text = file.read_text()
        imported = re.findall(r"^\s*(?:import|from) +([\w., ]+)", text, re.MULTILINE)
        formats = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
        assert not formats & set(re.findall(r"\w+", " ".join(imported))), file
        assert "allow_pickle=True" not in text, file
