"""A model → its artifact."""

from __future__ import annotations

from farrier_worker.line import Line
from farrier_worker.remote import RemoteBuilders, RemoteRecords, RemoteRunner, RemoteTasks
from farrier_worker.work.product import Product, model_of


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
    )
    return Product("artifact", artifact.write, artifact.report)
