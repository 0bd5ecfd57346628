"""Import a model by the frontend of its format, and report its open sizes and failing branches."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from farrier.errors import UnresolvedShapeError, UsageError
from farrier.frontends.builder import ImportedModel, Source, with_states
from farrier.frontends.onnx.model.bus_errors import reading
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.registry import frontend_of
from farrier.ir.control import failures
from farrier.ir.dim import Undecided
from farrier.ir.dim import typical as usual
from farrier.ir.graph import Graph
from farrier.options import CompileOptions
from farrier.options.shapes import GivenShape, Hot
from farrier.passes.float_form import float_form, has_pairs
from farrier.progress import SIZES, Listener, SizesSettled, Warned
from farrier.progress.steps import Steps
from farrier.targets import Target


def import_model(
    model: Model | Source, options: CompileOptions, steps: Steps, listener: Listener
) -> ImportedModel:
    """Return the model as a graph whose open dims are resolved, with the states that the options
    declare. Raises FarrierError."""
    with steps("import") as step:
        imported = typed(model, options.shapes, options.hot, options.typical)
        imported = step.done(with_states(imported, options.states))
    if imported.dims:
        preconditions = list(map(str, imported.preconditions))
        listener(SizesSettled(list(map(str, imported.dims)), preconditions))
    for notice in imported.notices:
        listener(Warned(f"{model.name}: {notice}", SIZES))
    return imported


def check_open_sizes(imported: ImportedModel, target: Target) -> None:
    """Raise UsageError for open dims if the target's backend does not support them."""
    if not imported.dims or target.backend.takes_open_sizes:
        return
    names = ", ".join(dim.name for dim in imported.dims)
    inputs = zip(imported.input_names, imported.graph.inputs, strict=True)
    shapes = (
        f"--shape {name}={','.join(map(str, map(usual, value.type.shape)))}"
        for name, value in inputs
        if not value.type.is_static
    )
    raise UsageError(
        f"the sizes of this model are open ({names}), and {target.cpu} has its memory planned when "
        "a model is compiled",
        hint=f"say what they are, as in {' '.join(shapes)}",
    )


def typed(
    model: Model | Source,
    shapes: Mapping[str, GivenShape],
    hot: Sequence[Hot] = (),
    typical: Hot = MappingProxyType({}),
) -> ImportedModel:
    """Import the model by the frontend of its format, with the given input shapes. `hot` are the
    shapes that get specialized code, and `typical` the typical sizes."""
    if isinstance(model, Source):
        return model.imported(shapes, hot, typical)
    return frontend_of(model).import_model(model, shapes, hot, typical)


def with_floats(imported: ImportedModel) -> ImportedModel:
    """Return the float form of a quantized model: the same model without quantization."""
    return dataclasses.replace(imported, graph=float_form(imported.graph))


def has_float_form(model: Model, options: CompileOptions) -> bool:
    """Check whether tensors between the model's operators are quantized. Raises FarrierError for a
    model that cannot be imported."""
    with reading(model):
        return has_pairs(typed(model, options.shapes, options.hot, options.typical).graph)


def warn_of_failures(graph: Graph, warned: Collection[str], listener: Listener) -> set[str]:
    """Warn of branches that are not compiled, except messages in `warned`; return all messages."""
    messages = dict.fromkeys(
        f"a run that takes one branch of node {node.origin!r} will end with an error: "
        f"{node.attr('reason')}"
        for node in failures(graph)
    )
    for message in messages:
        if message not in warned:
            listener(Warned(message))
    return {*warned, *messages}


@contextlib.contextmanager
def named_sizes(imported: ImportedModel) -> Iterator[None]:
    """Convert a question about open dims that a pass or a kernel cannot leave open to
    UnresolvedShapeError, with the names that the user knows."""
    try:
        yield
    except Undecided as error:
        names = {dim.symbol: dim.name for dim in imported.dims}
        text = re.sub(r"\bs\d+\b", lambda symbol: names.get(symbol[0], symbol[0]), str(error))
        raise UnresolvedShapeError(
            f"the model cannot be compiled for all of its sizes: {text}",
            hint="give --shape numbers, or ranges in which this does not change",
        ) from error
