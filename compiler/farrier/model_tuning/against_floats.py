"""Predict whether a quantized model runs faster than the float model from which it was derived."""

from __future__ import annotations

from collections.abc import Iterator

from farrier.ir.graph import Graph, Node
from farrier.ir.types import DType
from farrier.model_tuning.variant import Variant, make_variant
from farrier.passes import prepare
from farrier.passes.float_form import float_form, has_pairs, products_of_bytes

# A predicted time above this share of the float form's is within the error of predictions.
_GAINS = 0.95
_FLOATS = frozenset(dtype.value for dtype in DType if dtype.is_float)
_MANY = 0.1  # A share of all multiply-adds.


def slower_than_floats(imported: Graph, variant: Variant) -> str:
    """Return a warning if `variant`, a quantized model, is not predicted to run faster than its
    float form. Return "" if it is, or if the model is not quantized."""
    products = list(products_of_bytes(imported))
    if not products:
        return ""
    settings = variant.settings
    if has_pairs(imported):
        other = make_variant(prepare(float_form(imported), settings), settings)
        if _spaces(other) != _spaces(variant):  # A device multiplies only bytes.
            return ""
        ratio = _predicted_s(variant) / _predicted_s(other)
        if ratio <= _GAINS:
            return ""
        expected = f"take {ratio:.2f} times as long as its float form"
    # The model runs quantized, without a float form.
    elif settings.target.backend.byte_factors(settings.target) is None:
        expected = "be slower than its float form"
    else:
        return ""
    reasons = "; ".join(_reasons(imported, products, variant))
    return (
        f"the quantized model is expected to {expected} on {settings.target.cpu}: {reasons}. "
        "Compile the model that was not quantized for this target"
    )


def _spaces(variant: Variant) -> set[str]:
    return {choice.site.space for choice in variant.choices.values()}


def _predicted_s(variant: Variant) -> float:
    choices = variant.choices.values()
    return sum(choice.calls * choice.space.seconds(choice.decisions) for choice in choices)


def _reasons(imported: Graph, products: list[Node], variant: Variant) -> Iterator[str]:
    target = variant.settings.target
    factors = target.backend.byte_factors(target)
    if factors is None:
        yield "it has no instruction that adds up products of bytes"
        return
    share = _share_of_floats(variant)
    if share > _MANY:
        yield f"{share:.0%} of its multiply-adds are of floats{_example(imported, products)}"
    if factors not in (DType.U8, DType.I8):
        yield "bytes are widened to i16 there, and convolutions of floats take fewer products"
    elif share <= _MANY:
        yield "its conversions between bytes and floats take longer than its products gain"


def _share_of_floats(variant: Variant) -> float:
    reports = [choice.report() for choice in variant.choices.values()]
    every = sum(report.multiply_adds * report.calls for report in reports)
    floats = sum(
        report.multiply_adds * report.calls
        for report in reports
        if report.factors and set(report.factors.split()[:2]) <= _FLOATS
    )
    return floats / every if every else 0.0


def _example(imported: Graph, products: list[Node]) -> str:
    """Return as text a product that still multiplies floats, with the reason."""
    constants = {constant.value.name for constant in imported.constants}
    makers = {value.name: node for node in imported.nodes for value in node.outputs}
    for node in products:
        weights = node.inputs[1]
        assert weights is not None
        maker = makers.get(weights.name)
        source = weights if maker is None else maker.inputs[0]
        if source is not None and source.name not in constants:
            return f", such as those of {node.origin!r}, whose weights are not constant"
        if node.attr("group", 1) != 1 and weights.type.shape[1] != 1:
            return f", such as those of {node.origin!r}, a convolution in groups"
    return ""
