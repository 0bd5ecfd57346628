"""A compiled model and what it was made of → its kernels, to be read."""

from __future__ import annotations

from pathlib import Path

from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.work.product import Product, model_of

_SAID_EVERY = 16  # kernels, so that silence means that it hangs


def work(line: JobChannelClient) -> None:
    """Nothing is measured."""
    from farrier.listing.listing import list_kernels
    from farrier.options import CompileOptions
    from farrier.progress import StageStarted
    from farrier.runtime.artifact import load

    def say(done: int, _all: int) -> None:
        if done % _SAID_EVERY == 0:
            line.say(StageStarted("codegen"))

    options = CompileOptions.from_dict(line.order["options"])
    artifact = load(Path(line.order["artifact"]))
    found = list_kernels(model_of(line.order), options, artifact, say)
    product = Product("listing", found.write, {"is_same": found.document["is_same"]})
    product.hand_over(line, line.finish)
