"""What an import brings along, and who may import whom."""

import subprocess
import sys

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
