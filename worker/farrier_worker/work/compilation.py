"""The compilation of a model to an artifact."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from farrier.progress import Warned
from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.remote import RemoteBuilders, RemoteRecords, RemoteRunner, RemoteTasks
from farrier_worker.work.product import Product, model_of

if TYPE_CHECKING:
    from farrier.cost_model import CostModel
    from farrier.runtime.artifact import Artifact


def work(line: JobChannelClient) -> None:
    """Compile the model of a job, with measurements and verification on the farm's devices; `line`
    is the job's channel."""
    if line.order["now"]:
        _in_versions(line)
    else:
        _once_tuned(line)


def _once_tuned(line: JobChannelClient) -> None:
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
        reference_s=line.order["reference_s"],
    )
    _product(line, artifact).hand_over(line, line.finish)


def _in_versions(line: JobChannelClient) -> None:
    """Compile the model of a job and send each better artifact as a version: first the untuned one,
    then the improved ones. If an earlier attempt has sent versions, this attempt continues from the
    newest."""
    from farrier.background.rounds import rounds_of
    from farrier.options import CompileOptions
    from farrier.pipeline import improved_models
    from farrier.runtime.artifact import load

    options = CompileOptions.from_dict(line.order["options"])
    newest = line.order.get("artifact")
    for artifact in improved_models(
        model_of(line.order),
        dataclasses.replace(options, trials=None, budget_s=None),
        # An earlier attempt may have spent the whole budget.
        rounds_of(options) if options.tunes else [],
        runner=RemoteRunner(line),
        records=RemoteRecords(line),
        listener=line.say,
        against=line.order["against"],
        builders=RemoteBuilders(line),
        definitions=RemoteTasks(line),
        base=_base(line),
        reference_s=line.order["reference_s"],
        since=None if newest is None else load(Path(newest)),
    ):
        _product(line, artifact).hand_over(line, line.add_version)
    line.finish_as_it_is()


def _product(line: JobChannelClient, artifact: Artifact) -> Product:
    """Have the farm sign the artifact, and return it as a product that can be sent."""
    artifact.sign(line.sign)
    return Product("artifact", artifact.write, artifact.report)


def _base(line: JobChannelClient) -> CostModel | None:
    """Return the farm's cost model, or None for the built-in model. The farm's model was trained on
    measurements of other jobs and is not trusted, so it is read inside the sandbox."""
    from farrier.cost_model import CostModel

    if "cost_model" not in line.order:
        return None
    name = line.order["cost_model_name"]
    try:
        return CostModel.load(Path(line.order["cost_model"]).read_bytes(), name)
    except (ValueError, OSError) as error:
        line.say(
            Warned(f"{name} of the cost model cannot be used, so the built-in one is used: {error}")
        )
        return None
