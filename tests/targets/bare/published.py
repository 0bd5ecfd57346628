"""The published models for microcontrollers, on emulated boards: `make bare`.

    python -m tests.targets.bare.published [BOARD…] [--files FOLDER…] [--python LITERT]

MLPerf Tiny's five int8 models and four wake-word models are compiled for each board and run under
qemu. Each output must equal that of LiteRT's reference kernels, bit for bit; without LiteRT it must
equal that of Farrier on this machine. The command prints the bytes of the linked library, and fails
if its code or its RAM is above the limit, or a model is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import farrier
from farrier.errors import FarrierError
from farrier.frontends.tflite.reading import read_model
from farrier.targets.bare.elf import sections_of
from farrier.targets.bare.emulation import EmulatedBoard
from farrier.targets.bare.linking import library
from farrier.targets.bare.part import BarePart
from tests.frontends.tflite.compare import Array, Call, calls_of, litert_outputs

BOARDS = ("mps2-an386", "mps2-an505", "mps3-an547", "qemu-rv32imac")
"""The emulated boards with a Cortex-M4, M33 and M55, and with rv32imac."""
MODELS = {
    "anomaly detection": "ad01_int8",
    "keyword spotter": "kws_ref_model",
    "ResNet-8": "pretrainedResnet_quant",
    "visual wake words": "vww_96_int8",
    "streaming wake word": "str_ww_ref_model",
    "okay_nabu": "okay_nabu",
    "alexa": "alexa",
    "hey_jarvis": "hey_jarvis",
    "hey_mycroft": "hey_mycroft",
}
"""The names of the models and of their files: MLPerf Tiny's, then those of pymicro-wakeword."""
MOST_CODE = 24 << 10
MOST_RAM = 1.1
"""The most bytes of flash beyond the weights, and the most RAM relative to the lower bound."""

_ENVIRONMENT = Path("build/litert")
_TINY = Path("build/tiny")
_CALLS = 3
_HEADINGS = ("model", "board", "weights", "code", "RAM", "bound", "stack", "instructions", "result")


@dataclasses.dataclass(frozen=True)
class Figures:
    """The bytes that a model's linked library takes on a board, the instructions of a run, and the
    number of outputs that differ from the reference."""

    weights: int
    code: int
    ram: int
    bound: int
    stack: int
    instructions: int
    different: int

    @property
    def result(self) -> str:
        """The limits that the model exceeds, or "equal"."""
        failures = {
            f"{self.different} outputs differ": self.different > 0,
            f"more than {MOST_CODE:,} bytes of code": self.code > MOST_CODE,
            f"RAM above {MOST_RAM} of the bound": self.ram > MOST_RAM * self.bound,
        }
        return ", ".join(text for text, fails in failures.items() if fails) or "equal"


def figures(
    data: bytes, board: str, calls: Sequence[Call], expected: Sequence[Sequence[Array]]
) -> Figures:
    """Return the figures of a model on a board, which runs all calls. Raises FarrierError."""
    shapes = {name: array.shape for name, array in calls[0].items()}
    artifact = farrier.compile(data, target=board, shapes=shapes, verify=False)
    part = BarePart.of_json(artifact.manifest.backend)
    [code] = artifact.code.objects
    joined = library(part, code.content, bytes(artifact.params or b""))
    sizes, arena = sections_of(joined), part.arena
    run = EmulatedBoard.of_library(part, joined).run([bytes(nbytes) for nbytes in part.inputs])
    with contextlib.closing(artifact.session()) as session:
        results = [tuple(session.run(inputs).values()) for inputs in calls]
    alone = (
        nbytes
        for nbytes, place in zip((*arena.inputs, *arena.outputs), arena.lent, strict=True)
        if place < 0
    )
    return Figures(
        weights=part.params,
        code=sizes.flash_bytes - part.params,
        ram=arena.nbytes + sizes.ram_bytes,
        bound=artifact.report["memory"]["lower_bound_bytes"] + sum(alone),
        stack=run.stack_bytes,
        instructions=run.instructions,
        different=sum(
            (array.dtype, array.shape, array.tobytes())
            != (other.dtype, other.shape, other.tobytes())
            for result, right in zip(results, expected, strict=True)
            for array, other in zip(result, right, strict=True)
        ),
    )


def references(
    models: Mapping[str, bytes], calls: Mapping[str, Sequence[Call]], python: str
) -> Mapping[str, list[list[Array]] | str]:
    """Return the outputs of each model's calls by LiteRT's reference kernels, or LiteRT's error;
    without LiteRT, the outputs by Farrier on this machine. Raises FarrierError."""
    if shutil.which(python):
        print(f"The reference is LiteRT's reference kernels ({python}).\n", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            return dict(litert_outputs(models, calls, Path(folder), python))
    print(f"The reference is Farrier on this machine: there is no {python}.\n", flush=True)
    outputs: dict[str, list[list[Array]] | str] = {}
    for name, data in models.items():
        with contextlib.closing(farrier.compile(data, verify=False).session()) as session:
            outputs[name] = [[*session.run(inputs).values()] for inputs in calls[name]]
    return outputs


def rows(models: Mapping[str, bytes], boards: Sequence[str], python: str) -> Iterator[list[str]]:
    """Yield the cells of the table, row by row."""
    calls = {name: calls_of(read_model(data))[:_CALLS] for name, data in models.items()}
    expected = references(models, calls, python)
    for name, data in models.items():
        right = expected[name]
        if isinstance(right, str):
            yield [name, *[""] * 7, f"LiteRT: {right}"]
            continue
        for board in boards:
            try:
                of = figures(data, board, calls[name], right)
            except FarrierError as error:
                yield [name, board, *[""] * 6, f"{type(error).__name__}: {error}"]
                continue
            bytes_of = (of.weights, of.code, of.ram, of.bound, of.stack, of.instructions)
            yield [name, board, *(f"{number:,}" for number in bytes_of), of.result]


def _print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 if all models are there, right and within the limits."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.targets.bare.published",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "boards", nargs="*", metavar="BOARD", help=f"by default {', '.join(BOARDS)}"
    )
    parser.add_argument("--files", type=Path, nargs="*", default=[_ENVIRONMENT / "models", _TINY])
    parser.add_argument(
        "--python", default=str(_ENVIRONMENT / "bin" / "python"), help="with LiteRT"
    )
    options = parser.parse_args(arguments)
    there = {path.stem: path for folder in options.files for path in folder.rglob("*.tflite")}
    missing = [f"{stem}.tflite" for stem in MODELS.values() if stem not in there]
    models = {name: there[stem].read_bytes() for name, stem in MODELS.items() if stem in there}
    is_right = not missing
    for number, row in enumerate(rows(models, options.boards or BOARDS, options.python)):
        if not number:
            _print_row(_HEADINGS)
            _print_row(["---"] * len(_HEADINGS))
        _print_row(row)
        is_right &= row[-1] == "equal"
    if missing:
        print(
            f"\nNo folder of {', '.join(map(str, options.files))} has {', '.join(missing)}. MLPerf "
            f"Tiny's models are in the repository mlcommons/tiny: put a copy of it in {_TINY}, or "
            "name its folder with --files."
        )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
