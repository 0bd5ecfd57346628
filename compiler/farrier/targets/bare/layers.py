"""The names of layers in messages."""

from __future__ import annotations


def layer_name(origin: str) -> str:
    """Return the name of a layer for messages, given the `origin` of a node: the names of the
    model's nodes from which it derives. The name is that of the first of these nodes. For a node
    into which TFLite has merged layers, it contains all their names; the last one is used."""
    return origin.split(",")[0].rsplit(";")[-1]
