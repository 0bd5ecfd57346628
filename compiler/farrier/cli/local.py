"""The commands that need no server: compile, run, bench, opt; and `device`, which connects to a
broker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from farrier.cli.convert import convert
from farrier.cli.explore import explore
from farrier.cli.export import export
from farrier.cli.firmware import firmware
from farrier.cli.hardware import hardware
from farrier.cli.inspection import inspect
from farrier.cli.parsed import parsed
from farrier.cli.profile import profile
from farrier.cli.show import ProgressView, ms
from farrier.cli.signatures import read_key, verify_signature
from farrier.cli.targets import TargetOption, read_target
from farrier.errors import InputMismatchError, UsageError
from farrier.files.mapped import check_is_file
from farrier.frontends.onnx.model.file import Model
from farrier.options import MAX_LAYER_ERROR, CompileOptions
from farrier.options.shapes import parse_shapes, parse_sizes
from farrier.progress import Warned

if TYPE_CHECKING:
    import numpy.typing as npt

    from farrier.artifact.manifest import Manifest
    from farrier.bench.race import Entrant, Figures

PANEL = "Local"

ShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Shape of an input: NAME=1,3,224,224, or with open dimensions, "
        "NAME=batch:1..8,3,h,?; repeatable."
    ),
]
HotOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Sizes of open dimensions that get code of their own: batch=1,h=640; "
        "repeatable. none: the same code for all sizes. Default: the typical sizes."
    ),
]
TypicalOption = Annotated[
    str,
    typer.Option(
        help="Typical sizes of open dimensions: batch=1,h=640. Default: 1 for a batch, 224 "
        "for the side of an image, and for others 128 or the size that the operators imply."
    ),
]
MaxLayerErrorOption = Annotated[
    float,
    typer.Option(
        help="Largest error that the algorithm of a layer may add, as a "
        "share of the layer's range; 0 allows only plain sums."
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        help="Type in which contractions multiply: f32, bf16, f16 or tf32; sums are in f32."
    ),
]
ThreadsOption = Annotated[
    int, typer.Option(help="Number of threads; 0: one per core of the target.")
]
CoresOption = Annotated[
    int, typer.Option(help="Number of cores of this machine that compile; 0: all.")
]
StateOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Input that the session keeps between calls, and the output that replaces it: "
        "'past_key_values.*=present.*:capacity=4096'; repeatable."
    ),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the search.")]
VerifyOption = Annotated[
    bool, typer.Option(help="Run the compiled model and compare its outputs with the reference.")
]
ArtifactOption = Annotated[
    Path | None, typer.Option("-o", "--output", help="Artifact to write [MODEL.farrier].")
]
RecordsOption = Annotated[
    Path | None, typer.Option(help="File of tuning records (JSON lines) to use and extend.")
]
SignOption = Annotated[
    Path | None,
    typer.Option(help="Sign the artifact with the private Ed25519 key in this file (PEM)."),
]
DumpOption = Annotated[
    Path | None, typer.Option(help="Write every stage as text to this directory.")
]
VerboseOption = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show every stage and its time.")
]
_FLOAT_FORM = "farrier:floats"  # The name of a quantized model's float form in a race.
_SLOWER = 1.05  # Two runs of one artifact differ by less than this factor.


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    app.command("compile", rich_help_panel=PANEL)(compile_)
    for verb in (inspect, convert, run, export, firmware, hardware, explore, bench, profile, opt):
        app.command(verb.__name__, rich_help_panel=PANEL)(verb)
    app.command("verify-signature", rich_help_panel=PANEL)(verify_signature)
    passthrough = {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
    app.command("device", rich_help_panel="Roles", context_settings=passthrough)(device)


def compile_(
    model: Annotated[Path, typer.Argument(help="Model to compile: .onnx, .tflite, .pt2 or .mlir.")],
    output: ArtifactOption = None,
    target: TargetOption = "host",
    trials: Annotated[int | None, typer.Option(help="Number of candidates to measure.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time budget of tuning: 60s, 5m.")] = None,
    shape: ShapeOption = None,
    hot: HotOption = None,
    typical: TypicalOption = "",
    threads: ThreadsOption = 0,
    cores: CoresOption = 0,
    seed: SeedOption = 0,
    max_layer_error: MaxLayerErrorOption = MAX_LAYER_ERROR,
    records: RecordsOption = None,
    verify: VerifyOption = True,
    precision: PrecisionOption = "f32",
    state: StateOption = None,
    sign: SignOption = None,
    until: Annotated[str | None, typer.Option(help="Stop after this stage.")] = None,
    dump: DumpOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Compile a model on this machine. With --trials or --budget, also tune it here."""
    from farrier import pipeline
    from farrier.files.atomic import check_writable
    from farrier.records import FileRecords
    from farrier.runtime.size import Size

    check_is_file(model)
    output = output or model.with_suffix(".farrier")
    options = CompileOptions(
        target=read_target(target),
        trials=trials,
        threads=threads,
        seed=seed,
        max_layer_error=max_layer_error,
        verify=verify,
        precision=precision,
        cores=cores,
        **parsed(shape, hot, typical, budget, state),
    )
    if until is None:
        check_writable(output)
    key = None if sign is None else read_key(sign)
    store = None if records is None else FileRecords(records)
    with ProgressView(verbose=verbose) as view:
        if store is not None and store.damaged:
            lines = f"{len(store.damaged)} lines of {records}"
            view(Warned(f"{lines} are not records: {store.damaged[0]}"))
        try:
            artifact = pipeline.compile_model(
                Model.of_path(model),
                options,
                records=store,
                listener=view,
                dump=pipeline.Dump(dump, until),
            )
        except pipeline.StoppedError as stop:
            typer.echo(f"stopped after {stop.stage}")
            return
    if key is not None:
        artifact.sign(key.sign)
    path = artifact.save(output)
    typer.echo(f"size {Size.of(artifact, path)}", err=True)
    typer.echo(path)


def run(
    artifact: Annotated[Path, typer.Argument(help="The .farrier file.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Input as an array: NAME=FILE.npy; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the outputs to this .npz file.")
    ] = None,
    threads: Annotated[
        int, typer.Option(help="Number of threads; 0: the number for which the artifact was tuned.")
    ] = 0,
    memory_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            help="Largest memory in bytes for outputs and workspace, if values decide "
            "their sizes; 0: all memory of the machine.",
        ),
    ] = 0,
) -> None:
    """Run an artifact on arrays. Print the shape and range of each output."""
    import numpy as np

    from farrier.files.arrays import save_arrays
    from farrier.files.atomic import write_atomically
    from farrier.runtime.artifact import load

    arrays = _read_arrays(inputs or [])
    loaded = load(artifact)
    for spec in loaded.manifest.inputs:
        value, dtype = arrays.get(spec.name), spec.element.numpy
        if value is not None and value.dtype == np.dtype((np.void, dtype.itemsize)):
            arrays[spec.name] = value.view(
                dtype
            )  # A .npy file stores types of ml_dtypes as raw bytes.
    outputs = _arrays_of(loaded.session(threads, memory_bytes).run(arrays))
    for name, array in outputs.items():
        if array.dtype.kind == "U":
            spread = "strings"
        else:
            low, high = (float(edge(array)) if array.size else 0.0 for edge in (np.min, np.max))
            spread = f"[{low:.6g}, {high:.6g}]" if array.size else "empty"
        typer.echo(f"{name}: {array.dtype}{list(array.shape)} {spread}")
    if output is not None:
        write_atomically(output, lambda file: save_arrays(file, outputs))


def bench(
    model: Annotated[Path, typer.Argument(help="Artifact (.farrier) or model to time.")],
    against: Annotated[
        str, typer.Option(help="Engines to compare, separated by commas: onnxruntime,openvino.")
    ] = "",
    onnx: Annotated[
        Path | None,
        typer.Option(
            "--model", help="ONNX file of the artifact; default: the one in the artifact's folder."
        ),
    ] = None,
    shape: ShapeOption = None,
    typical: TypicalOption = "",
    target: TargetOption = "host",
    threads: ThreadsOption = 0,
    precision: PrecisionOption = "f32",
    rounds: Annotated[
        int, typer.Option(min=1, help="Number of rounds, each of 0.2 s per engine.")
    ] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time an artifact or a model against other engines. A model is first compiled without tuning,
    and a quantized model is also timed in its float form."""
    from farrier.artifact.trust import own_artifacts
    from farrier.bench.race import Entrant, peer, race
    from farrier.options.precision import parse_precision
    from farrier.packaging.draws import runnable_inputs
    from farrier.runtime.artifact import is_artifact, load
    from farrier.runtime.loaded_model import check_runs_here

    names = [name for name in against.split(",") if name]
    compiled = is_artifact(model)
    if names and onnx is None:
        onnx = _source(model, load(model).manifest.name) if compiled else model
    asked = parse_precision(load(model).manifest.precision if compiled else precision)
    peers = [peer(name, onnx, sys.executable, asked) for name in names if onnx is not None]
    with (
        tempfile.TemporaryDirectory(prefix="farrier-bench-") as folder,
        contextlib.nullcontext() if compiled else own_artifacts(),
    ):
        own = [Entrant("farrier", model, precision=asked)]
        if not compiled:
            options = CompileOptions(
                target=read_target(target),
                shapes=parse_shapes(shape or []),
                typical=parse_sizes(typical) if typical else {},
                threads=threads,
                verify=False,
                precision=precision,
            )
            own = _compiled_entrants(Model.of_path(model), options, Path(folder))
        artifact = load(own[0].model)
        _check_has_no_state(artifact.manifest)
        figures = race(
            [*own, *peers],
            runnable_inputs(artifact),
            threads=check_runs_here(artifact.manifest, threads),
            target=read_target(target),
            rounds=rounds,
        )
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(figure) for figure in figures], indent=1))
    else:
        Console(highlight=False, soft_wrap=True).print(figures_table(figures))
    _warn_of_float_form(figures)


def _compiled_entrants(model: Model, options: CompileOptions, folder: Path) -> list[Entrant]:
    """Compile a model into a folder, and a quantized model also in its float form; return the
    entrants of the race."""
    from farrier import pipeline
    from farrier.bench.race import Entrant
    from farrier.options.precision import parse_precision

    precision = parse_precision(options.precision)
    path = folder / "model.farrier"
    pipeline.compile_model(model, options).save(path)
    entrants = [Entrant("farrier", path, precision=precision)]
    if pipeline.has_float_form(model, options):
        floats = folder / "floats.farrier"
        pipeline.compile_model(model, options, as_floats=True).save(floats)
        entrants.append(Entrant(_FLOAT_FORM, floats, precision=precision))
    return entrants


def _check_has_no_state(manifest: Manifest) -> None:
    if manifest.state:
        raise UsageError(
            f"{manifest.name} keeps {manifest.state[0].input} from call to call, so no two "
            "calls are the same",
            hint="compile it without --state to time it; `farrier profile` times its kernels",
        )


def _warn_of_float_form(figures: Sequence[Figures]) -> None:
    """Warn if a quantized model is slower than its float form."""
    for entrant in figures:
        if entrant.label == _FLOAT_FORM and entrant.ratio > _SLOWER:
            typer.echo(
                f"warning: the quantized model takes {entrant.ratio:.2f} times as long as its "
                "float form: on this machine, compile the model that is not quantized",
                err=True,
            )


def opt(
    file: Annotated[
        Path,
        typer.Argument(
            help="Graph or loop function as text, as `farrier compile --dump` writes it."
        ),
    ],
    passes: Annotated[
        str,
        typer.Option(
            "-p", "--passes", help="Passes to run, separated by commas: fold-constants,fuse."
        ),
    ] = "",
    print_after_all: Annotated[
        bool, typer.Option("--print-after-all", help="Print the IR after each pass.")
    ] = False,
    constants: Annotated[
        Path | None,
        typer.Option(
            help="Folder of large constants; default: the folder "
            "`constants` next to FILE or to its folder."
        ),
    ] = None,
    target: TargetOption = "host",
    precision: PrecisionOption = "f32",
) -> None:
    """Run passes on a graph or loop function in text form. Print the result."""
    from farrier import passes as pipeline_passes
    from farrier.ir import constants as large
    from farrier.options.precision import parse_precision
    from farrier.targets import parse_target

    machine = parse_target(read_target(target))
    if constants is not None and not constants.is_dir():
        raise UsageError(
            f"{constants} is not a folder",
            hint="use --constants DIR/constants, of a folder that --dump DIR wrote",
        )
    typer.echo(
        pipeline_passes.opt(
            _read_text(file),
            [name.strip() for name in passes.split(",") if name.strip()],
            print_after_all=print_after_all,
            constants=large.beside(file) if constants is None else large.StoredConstants(constants),
            settings=pipeline_passes.Settings(
                machine, machine.threads, precision=parse_precision(precision)
            ),
        ),
        nl=False,
    )


def device(context: typer.Context) -> None:
    """Measure for a farm, as farrier-device does. The agent connects to the farm's broker and runs
    the batches that it sends."""
    from farrier_device import agent

    raise SystemExit(agent.main(context.args))


def figures_table(figures: list[Figures]) -> Table:
    """Return the result of a race as a table: latency, spread, and the ratio of the first engine to
    each."""
    table = Table("engine", "version", "median ms", "p10-p90", "best", "ratio", "error", box=None)
    for figure in figures:
        table.add_row(
            figure.label,
            figure.version,
            ms(figure.median_ms),
            f"{ms(figure.p10_ms)}-{ms(figure.p90_ms)}",
            ms(figure.best_ms),
            f"{figure.ratio:.3f}",
            f"{figure.max_error:.1e}",
        )
    return table


def _source(artifact: Path, name: str) -> Path:
    """Return the path of the ONNX file, in the artifact's folder, from which an artifact was
    compiled. Raises UsageError if it is not there."""
    for path in (artifact.with_suffix(".onnx"), artifact.parent / f"{name}.onnx"):
        if path.is_file():
            return path
    raise UsageError(
        f"other engines cannot load {artifact}, and there is no {name}.onnx in its folder",
        hint="name the model from which it was compiled: --model MODEL.onnx",
    )


def _existing(path: Path) -> Path:
    check_is_file(path)
    return path


def _read_text(path: Path) -> str:
    try:
        return _existing(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        hint = "`farrier compile --dump DIR` writes graphs as text"
        raise UsageError(f"{path} is not text", hint=hint) from None


def _arrays_of(outputs: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Return the outputs as arrays; items of a sequence are named by the output and their
    position."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, value in outputs.items():
        items = value if isinstance(value, list) else None
        arrays |= (
            {name: value} if items is None else {f"{name}.{i}": a for i, a in enumerate(items)}
        )
    return arrays


def _read_arrays(texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for text in texts:
        name, array = _read_array(text)
        if name in arrays:
            raise UsageError(
                f"two arrays are given for {name!r}", hint="use --input once for each input"
            )
        arrays[name] = array
    return arrays


def _read_array(text: str) -> tuple[str, npt.NDArray[Any]]:
    name, equals, path = text.rpartition("=")
    if not (name and equals):
        raise UsageError(
            f"cannot read the input {text!r}", hint="write NAME=FILE.npy: --input x=x.npy"
        )
    loaded = _load(Path(path))
    if isinstance(loaded, Mapping):
        raise InputMismatchError(f"{path} is an archive, not one array")
    return name, loaded


def _load(path: Path) -> npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]:
    """Return the array in a .npy file, or all arrays, by name, in a .npz file."""
    import numpy as np

    try:
        loaded: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]
        loaded = np.load(_existing(path), allow_pickle=False)
        return loaded
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        hint = "numpy.save writes one array, numpy.savez several"
        raise InputMismatchError(f"{path} does not contain NumPy arrays", hint=hint) from error
