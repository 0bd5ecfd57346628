"""Recognize files of other formats that users mistake for ONNX models, by their first bytes."""

from __future__ import annotations

_FORMATS: tuple[tuple[int, bytes, str, str], ...] = (  # Offset, bytes, name of the format, hint.
    (
        4,
        b"ORTM",
        "a model in ONNX Runtime's own format (.ort)",
        "compile the .onnx file from which it was converted",
    ),
    (
        0,
        b"version https://git-lfs.github.com/spec/",
        "a pointer of Git LFS in the place of the file",
        "fetch the file itself: git lfs pull",
    ),
    (
        0,
        b"PK\x03\x04",
        "a ZIP archive, as PyTorch's checkpoints and .npz files are",
        "export the model: torch.onnx.export; or unpack the archive",
    ),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it"),
    *(
        (
            0,
            b"\x80" + bytes([protocol]),
            "a Python pickle (.pkl, a checkpoint of torch before 1.6), which is not loaded",
            "of a torch module: torch.export.save(torch.export.export(module.eval(), args), "
            '"model.pt2"); of scikit-learn: skl2onnx.to_onnx',
        )
        for protocol in (2, 3, 4, 5)
    ),
    (
        0,
        b"\x89HDF\r\n",
        "an HDF5 file, as Keras writes it",
        "convert it: farrier convert PATH -o model.onnx",
    ),
    (8, b'{"', "weights (.safetensors), without a graph", "export the module that uses them"),
    (4, b"ET12", "an ExecuTorch program (.pte)", "compile the .pt2 file that it was lowered from"),
    (0, b"GGUF", "a GGUF model", "export the model to ONNX from its framework"),
    *(
        (0, b"<" + sign, "a text that begins with <, as web pages do", "download the file itself")
        for sign in (b"!", b"?", b"h", b"H")
    ),
)
_JAX = b"ML\xefR\rStableHLO"  # The module in a serialization of jax.export; it may stand anywhere.
_JAX_WITHIN = 1 << 16


def other_format(data: bytes | memoryview) -> tuple[str, str] | None:
    """Return the name of a file's format and advice on what to do, or None if the format is
    unknown."""
    head = bytes(data[:64])
    for at, magic, what, hint in _FORMATS:
        if head[at:].startswith(magic):
            return what, hint
    if _JAX in bytes(data[:_JAX_WITHIN]):
        return "an export of JAX", "convert it: farrier convert PATH -o model.mlir"
    return None
