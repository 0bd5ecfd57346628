"""Export known architectures with random weights, on a machine with torch and transformers.

    python -m bench.exports {tiny,full,speech} FOLDER [NAME ...]

`tiny` writes FOLDER/NAME.onnx: small configurations with ranges of open dims, for `bench.real`.
`full` writes FOLDER/NAME.onnx and NAME.onnx.data as `torch.onnx.export` does by default: published
sizes, 6 GB in all, for `bench.public`. `speech` writes FOLDER/NAME.onnx by torch's older exporter:
tiny models whose output lengths depend on predicted durations, for `bench.public`.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

import torch

from bench.exports import full, speech, tiny
from bench.exports.common import Case, Wrapped, randomize

_SETS = {"tiny": tiny.CASES, "full": full.CASES}


def _export(case: Case, path: Path, *, beside: bool) -> None:
    """Export a model to a file, with its weights in a second file if `beside`, else in the same
    file. Raises the errors of torch's exporter."""
    module, arguments, shapes = case
    randomize(module)
    torch.onnx.export(
        module.eval(),
        arguments,
        path,
        input_names=module.names if isinstance(module, Wrapped) else None,
        dynamic_shapes=shapes,
        dynamo=True,
        external_data=beside,
        verbose=False,
    )


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in (*_SETS, "speech"):
        print(__doc__)
        return 2
    which, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    warnings.filterwarnings("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or (speech.CASES if which == "speech" else _SETS[which]):
        path = folder / f"{name}.onnx"
        try:
            torch.manual_seed(0)
            if which == "speech":
                speech.export(speech.CASES[name](), path)
            else:
                _export(_SETS[which][name](), path, beside=which == "full")
            size = sum(file.stat().st_size for file in folder.glob(f"{path.name}*"))
            print(f"{name}: {size / 1e6:.1f} MB", flush=True)
        except Exception as error:  # One model's error of any kind must not prevent the others.
            failed += 1
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
