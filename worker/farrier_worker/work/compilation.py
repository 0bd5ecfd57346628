"""A model → its artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farrier.progress import Warned
from farrier_worker.line import Line
from farrier_worker.remote import RemoteBuilders, RemoteRecords, RemoteRunner, RemoteTasks
from farrier_worker.work.product import Product, model_of

if TYPE_CHECKING:
    from farrier.cost_model import CostModel


def work(line: Line) -> Product:
    """Measures and verifies on the farm's devices."""
    from farrier.options import CompileOptions
    from farrier.pipeline import compile_model

    artifact = compile_model(
        model_of(line.order),
        CompileOptions.from_dict(line.order["options"]),
        runner=RemoteRunner(line),
        records=RemoteRecords(line),
        listener=line.say,
        against=line.order["against"],
        builders=RemoteBuilders(line),
        definitions=RemoteTasks(line),
        base=_base(line),
    )
    return Product("artifact", artifact.write, artifact.report)


def _base(line: Line) -> CostModel | None:
    """The farm's cost model; None for the one that ships. The trainer's process made it of what
    others' jobs measured, and it is read within the same walls as the model."""
    from farrier.cost_model import CostModel

    if "cost_model" not in line.order:
        return None
    name = line.order["cost_model_name"]
    try:
        return CostModel.load(Path(line.order["cost_model"]).read_bytes(), name)
    except ValueError as error:
        line.say(
            Warned(f"{name} of the cost model is of no use, so the one that ships is: {error}")
        )
        return None
