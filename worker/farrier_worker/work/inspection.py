"""The inspection of a model, whose result is a document."""

from __future__ import annotations

from typing import IO

from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.work.product import Product, model_of


def work(line: JobChannelClient) -> None:
    """Inspect the model of a job and send the document. If the file is not a model, the document
    states that."""
    from farrier.frontends.registry import frontend_of

    model = model_of(line.order)
    text = frontend_of(model).inspection(model).to_json()

    def write(file: IO[bytes]) -> None:
        file.write(text)

    Product("document", write, {}).hand_over(line, line.finish)
