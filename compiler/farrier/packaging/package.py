"""Package the results of a compilation as one artifact."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import platform
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact import calls, container, schedules
from farrier.artifact.code import PROGRAM
from farrier.artifact.declaration import (
    Declaration,
    DeclaredSize,
    DeclaredValue,
    tensor_type,
)
from farrier.artifact.manifest import (
    STRING,
    Capacity,
    CountedDim,
    Manifest,
    SizeCheck,
    TensorSpec,
)
from farrier.artifact.schedules import Schedules
from farrier.compile_pool.slow import slow_of_forms
from farrier.frontends.builder import ImportedModel
from farrier.ir.control import graphs_in
from farrier.ir.dim import Extent, typical
from farrier.ir.graph import Constant, Graph, Value
from farrier.ir.printer import print_ir
from farrier.ir.types import Shape
from farrier.model_tuning.compare import Race
from farrier.model_tuning.variant import Variant
from farrier.ops import Product, product_of, winograd
from farrier.options.precision import Precision
from farrier.packaging.compared import compared_with
from farrier.packaging.verify import Verification
from farrier.progress import Raced
from farrier.records import RecordStore, usable
from farrier.runtime import artifact as members
from farrier.runtime.artifact import Artifact
from farrier.targets.linked import LinkedModel
from farrier_device.program import program_to_json

_TOOLS = ("farrier", "llvmlite", "onnx", "numpy", "ziglang")


def specs(imported: ImportedModel) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the model's inputs and outputs under their names in its file."""
    graph = imported.graph
    return (
        _specs(imported, imported.input_names, graph.inputs, imported.axes),
        _specs(imported, imported.output_names, graph.outputs, [()] * len(graph.outputs)),
    )


def package(
    name: str,
    imported: ImportedModel,
    variants: Sequence[Variant],
    linked: LinkedModel,
    *,
    verified: Verification | None,
    race: Race | None,
    tuning: Mapping[str, Any] | None,
    algorithms: Mapping[str, Any],
    seconds: Mapping[str, float],
    records: RecordStore,
    emulated: bool,
    raced: Sequence[Raced] = (),
) -> Artifact:
    """Return the artifact in memory.

    `variants` are the model's form for all sizes of its dims, then those for hot sizes; `seconds`
    are the times of the pipeline's steps; `race` is between the model with default schedules and
    the tuned one, if it was tuned; `tuning` reports how the tuning time was spent, and `raced` the
    results of other engines. Times of an `emulated` device are left out.
    """
    report = {
        **_report_of_model(imported, variants),
        **_report_of_times(verified, race, variants[0].settings.precision, emulated),
        "against": [dataclasses.asdict(result) for result in raced],
        "tuning": tuning,
        "algorithms": dict(algorithms),
        "seconds": dict(seconds),
        **_report_of_bytes(imported, variants, linked),
    }
    used = "".join(_records_used(each, records) for each in variants)
    contents = {
        **{code.path: code.content for code in linked.code.objects},
        **_program(linked),
        members.GRAPH: print_ir(variants[0].graph, _Numbers()).encode(),
        members.RECORDS: used.encode(),
        members.SCHEDULES: schedules.to_json(map(_schedules, variants)).encode(),
        members.CALLS: calls.to_json(linked.calls).encode(),
        members.REPORT: json.dumps(report, indent=1).encode(),
    }
    manifest = _manifest(name, imported, variants, linked)
    return Artifact(manifest, contents, linked.params.view)


def _report_of_model(imported: ImportedModel, variants: Sequence[Variant]) -> dict[str, Any]:
    """Return the part of the report about sizes, warnings and kernels that no scheduling rule
    covers."""
    precision = variants[0].settings.precision
    return {
        "precision": precision.value,
        "dims": [
            {
                "name": dim.name,
                "low": dim.low * dim.step,
                "high": dim.high * dim.step,
                "step": dim.step,
                "typical": dim.typical * dim.step,
            }
            for dim in imported.dims
        ],
        "preconditions": list(map(str, imported.preconditions)),
        "warnings": list(imported.notices),
        "slow": [
            kernel.to_dict()
            for kernels in slow_of_forms(each.choices for each in variants)
            for kernel in kernels
        ],
    }


def _report_of_times(
    verified: Verification | None, race: Race | None, precision: Precision, emulated: bool
) -> dict[str, Any]:
    """Return the part of the report about errors of outputs and times; times of emulators are left
    out."""
    race = None if emulated else race
    return {
        "verification": _figures(verified, precision, emulated),
        "untuned_ms": None if race is None else _latency(np.array(race.default_ns) / 1e6),
        "tuned_ms": None if race is None else _latency(np.array(race.variant_ns) / 1e6),
        "tuned_is_faster": None if race is None else race.is_won,
    }


def _report_of_bytes(
    imported: ImportedModel, variants: Sequence[Variant], linked: LinkedModel
) -> dict[str, Any]:
    """Return the part of the report about memory and sizes in bytes."""
    return {
        "memory": {
            "workspace_bytes": linked.workspace_bytes,
            "lower_bound_bytes": linked.memory.lower_bound,
            "params_bytes": linked.params.nbytes,
        },
        "size": {
            "weights_bytes": _constant_bytes(imported.graph),
            "winograd_bytes": _winograd_bytes((v.graph for v in variants), linked.bytes_of),
            "params_bytes": linked.params.nbytes,
            "library_bytes": linked.code.nbytes,
        },
    }


def _manifest(
    name: str, imported: ImportedModel, variants: Sequence[Variant], linked: LinkedModel
) -> Manifest:
    settings = variants[0].settings
    target = settings.target
    choices = {key: choice for each in variants for key, choice in each.choices.items()}
    inputs, outputs = specs(imported)
    named = {dim.symbol: dim for dim in imported.dims}
    return Manifest(
        name=name,
        inputs=inputs,
        outputs=outputs,
        architecture=target.arch,
        machine=target.cpu,
        features=target.features,
        code=tuple(code.file for code in linked.code.objects),
        backend=dict(linked.code.backend),
        precision=settings.precision.value,
        params_bytes=linked.params.nbytes,
        dims=tuple(named[s.name] for s in linked.dims if s not in linked.capacities),
        capacities=tuple(Capacity(s.name, s.typical) for s in linked.capacities),
        preconditions=imported.preconditions,
        checks=tuple(
            SizeCheck(c.origin, _text(c.most), c.is_exact, c.reason, c.needs) for c in linked.checks
        ),
        counted=tuple(CountedDim(s.name, _text(s.high)) for s in linked.counted),
        sizes=linked.sizes,
        state=imported.states,
        declaration=_declaration(imported, inputs, outputs),
        hashes={
            members.PARAMS: linked.params.digest,
            **{name: container.digest(text) for name, text in _program(linked).items()},
        },
        tools=_tools(),
        kernels=tuple(choice.report() for choice in choices.values()),
    )


def _program(linked: LinkedModel) -> dict[str, bytes]:
    """Return the archive member that contains the program. The result is {} if the code objects
    contain the program."""
    program = linked.code.program
    return {} if program is None else {PROGRAM: program_to_json(program).encode()}


def _declaration(
    imported: ImportedModel, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Declaration | None:
    """Return the interface that the model file declares, completed by the sizes that compilation
    has inferred or fixed. Return None if the model does not come from a file that declares its
    interface."""
    declared = imported.declaration
    if declared is None:
        return None
    names = {size for value in declared.inputs for size in value.dims if isinstance(size, str)}
    symbols = {dim.symbol: dim.name for dim in imported.dims if dim.name in names and dim.step == 1}
    return dataclasses.replace(
        declared,
        inputs=tuple(_with_tensors(value, inputs, symbols) for value in declared.inputs),
        outputs=tuple(_with_tensors(value, outputs, symbols) for value in declared.outputs),
    )


def _with_tensors(
    value: DeclaredValue, specs: Sequence[TensorSpec], symbols: Mapping[str, str]
) -> DeclaredValue:
    """Return the declared value, completed by the names of the tensors that represent it and by the
    sizes that were inferred for it. `symbols` maps symbols to the names of their dims."""
    if value.is_sequence:
        members = value.members_in({spec.name for spec in specs})
        return dataclasses.replace(value, members=members)
    spec = next((spec for spec in specs if spec.name == value.name), None)
    if spec is None:
        return value
    if value.keys:
        return dataclasses.replace(value, members=(value.name,))
    shape = spec.shape[:-1] if spec.is_strings else spec.shape
    declared: Sequence[DeclaredSize] = value.dims
    if len(declared) != len(shape):
        declared = [symbols.get(str(size)) for size in shape]
    dims = (
        size if isinstance(size, int) else own for size, own in zip(shape, declared, strict=True)
    )
    return dataclasses.replace(
        value,
        type=value.type or tensor_type(spec.dtype),
        dims=tuple(dims),
        members=(value.name,),
    )


class _Numbers:
    """Names for large constants: numbers, equal for equal constants, because hashing gigabytes
    would take seconds."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, constant: Constant) -> str:
        return f"#{self._numbers.setdefault(constant.identity, len(self._numbers))}"


def _constant_bytes(graph: Graph) -> int:
    """Return the total size of the model's constants in bytes; a constant that regions share counts
    once."""
    constants = (constant for whole in graphs_in(graph) for constant in whole.constants)
    return sum(
        {
            id(constant.content): typical(constant.value.type.nbytes) for constant in constants
        }.values()
    )


def _winograd_bytes(graphs: Iterable[Graph], bytes_of: Mapping[Hashable, int]) -> int:
    """Return by how many bytes the transformed weights of Winograd convolutions exceed their
    sources."""
    added: dict[Hashable, int] = {}
    for whole in (part for graph in graphs for part in graphs_in(graph)):
        identities = {constant.value.name: constant.identity for constant in whole.constants}
        for kernel in whole.nodes:
            if kernel.op != "Fused":
                continue
            (region,) = kernel.regions
            outer = dict(zip((v.name for v in region.inputs), kernel.inputs, strict=True))
            for node in region.nodes:
                if product_of(node) is Product.FILTERING:
                    (_, weights, *_) = node.inputs
                    assert weights is not None
                    source = outer[weights.name]
                    assert source is not None
                    identity = identities[source.name]
                    added[identity] = bytes_of[identity] - winograd.source_bytes(weights.type)
    return sum(added.values())


def _specs(
    imported: ImportedModel,
    names: Sequence[str],
    values: Sequence[Value],
    axes: Iterable[tuple[str, ...]],
) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name,
            STRING if name in imported.strings else value.type.dtype.value,
            *_shape(value.type.shape),
            axes=called,
            distinguished_values=compared_with(imported.graph, value),
        )
        for name, value, called in zip(names, values, axes, strict=True)
    )


def _shape(shape: Shape) -> tuple[tuple[int | str, ...], tuple[int, ...]]:
    """Return a shape in the manifest's form, and the typical shape if it is not constant, else
    ()."""
    texts = tuple(map(_text, shape))
    is_fixed = all(isinstance(extent, int) for extent in shape)
    return texts, () if is_fixed else tuple(map(typical, shape))


def _text(extent: Extent) -> int | str:
    return extent if isinstance(extent, int) else str(extent)


def _tools() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    return versions | {tool: importlib.metadata.version(tool) for tool in _TOOLS}


def _figures(
    verified: Verification | None, precision: Precision, emulated: bool
) -> dict[str, Any] | None:
    if verified is None:
        return None
    parting = verified.parting
    return {
        "max_error": _finite(verified.max_error),  # A fraction of the output's range.
        "differs": parting
        and {
            "engine": parting.engine,
            "node": parting.node,
            "node_error": _finite(parting.node_error),
        },
        "tolerance": precision.tolerance,
        "reference": verified.reference,
        "device": verified.device,
        "confirmed_by": verified.confirmed_by,
        "trusted": not verified.untrusted,
        "sandbox": verified.sandbox,
        "emulated": emulated,
        "latency_ms": None if emulated else _latency(np.array(verified.samples_ms)),
    }


def _finite(error: float | None) -> float | None:
    """Return an error of a comparison, or None (null in JSON) if it is infinite, which JSON cannot
    represent."""
    return error if error is not None and math.isfinite(error) else None


def _latency(samples: npt.NDArray[np.float64]) -> dict[str, Any]:
    low, median, high = (float(p) for p in np.percentile(samples, (10, 50, 90)))
    return {"median": median, "p10": low, "p90": high, "runs": len(samples)}


def _schedules(variant: Variant) -> Schedules:
    ways = variant.settings.algorithms.items()
    return Schedules(
        algorithms={key: way.value for key, way in ways},
        decisions={key: dict(choice.decisions) for key, choice in variant.choices.items()},
        stack_bytes=variant.settings.stack_bytes,
    )


def _records_used(variant: Variant, records: RecordStore) -> str:
    """Return the records of the chosen schedules, as JSON lines."""
    fingerprint, threads = variant.settings.target.fingerprint, variant.settings.threads
    lines = []
    for key, choice in variant.choices.items():
        for record in usable(records, key, fingerprint, threads, *choice.space.rules):
            if record.knobs == choice.decisions:
                lines.append(record.to_line())
    return "".join(f"{line}\n" for line in lines)
