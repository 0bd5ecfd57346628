"""The listing of a compiled model's kernels, from the model and its artifact."""

from __future__ import annotations

from pathlib import Path

from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.work.product import Product, model_of

# An event is reported after this number of kernels, so that only a hanging process is silent.
_SAID_EVERY = 16


def work(line: JobChannelClient) -> None:
    """List the kernels of a compiled model, without measuring them."""
    from farrier.listing.listing import list_kernels
    from farrier.options import CompileOptions
    from farrier.progress import StageStarted
    from farrier.runtime.artifact import load

    def say(done: int, _all: int) -> None:
        if done % _SAID_EVERY == 0:
            line.say(StageStarted("codegen"))

    options = CompileOptions.from_dict(line.order["options"])
    artifact = load(Path(line.order["artifact"]))
    listing = list_kernels(model_of(line.order), options, artifact, say)
    product = Product("listing", listing.write, {"is_same": listing.document["is_same"]})
    product.hand_over(line, line.finish)
