"""The names of layers in messages."""

from __future__ import annotations


def layer_name(origin: str) -> str:
    """Return the name of the first of the nodes of a model that `origin` lists. TFLite joins the
    names of layers that it merged; the last of them is the layer's."""
    return origin.split(",")[0].rsplit(";")[-1]
