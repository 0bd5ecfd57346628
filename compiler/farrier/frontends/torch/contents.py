"""Recognize zip archives that are not exported programs by the members that each kind contains."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SAVE = 'torch.export.save(torch.export.export(module.eval(), args), "model.pt2")'
# A pattern of a member's name, the content, and the way to a model that Farrier reads.
_CONTENTS = (
    (
        r"^META-INF/MANIFEST\.MF$",
        "Java classes (.jar)",
        f"export the model from its framework: of PyTorch, {_SAVE}",
    ),
    (
        r"^[^/]+/(code/|constants\.pkl$)",
        "a TorchScript module, which has another kind of graph",
        f"export the Python module that was scripted: {_SAVE}",
    ),
    (
        r"^[^/]+/data\.pkl$",
        "a checkpoint of torch (.pt, .pth): a pickle of weights, without a graph",
        "build the module, module.load_state_dict(torch.load(PATH, weights_only=True)), then "
        f"{_SAVE}",
    ),
    (r"\.npy$", "numpy arrays (.npz)", f"export the module that uses them: {_SAVE}"),
    (
        r"^model\.weights\.h5$",
        "a Keras model (.keras)",
        "farrier convert PATH -o model.onnx",
    ),
    (
        r"(^|/)saved_model\.pb$",
        "a SavedModel of TensorFlow",
        "unpack it, then farrier convert FOLDER -o model.tflite",
    ),
    (
        r"\.mlpackage/|(^|/)Data/com\.apple\.CoreML/",
        "a Core ML package",
        "export the model from the framework that it was converted from",
    ),
    (r"\.(onnx|tflite|pt2)$", "a model in a zip archive", "unpack it: unzip PATH"),
    (r"\.safetensors$", "weights (.safetensors)", f"export the module that uses them: {_SAVE}"),
)


def content_of(names: Sequence[str]) -> tuple[str, str]:
    """Return a description of a zip archive that is not an exported program, recognized by the
    names of its members, and a hint on what to do with it."""
    for pattern, content, hint in _CONTENTS:
        if any(map(re.compile(pattern).search, names)):
            return f"it holds {content}", hint
    return "it has no member archive_format of pt2", f"a .pt2 file is an exported module: {_SAVE}"
