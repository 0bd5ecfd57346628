"""A model → a document on it."""

from __future__ import annotations

from typing import IO

from farrier_worker.line import Line
from farrier_worker.work.product import Product, model_of


def work(line: Line) -> None:
    """What is no model has a document, too, which says so."""
    from farrier.frontends.onnx.importer import inspection

    text = inspection(model_of(line.order)).to_json()

    def write(file: IO[bytes]) -> None:
        file.write(text)

    Product("document", write, {}).hand_over(line, line.finish)
