"""Convert errors of a node to errors in terms of the model: node name, origin, inputs that decide a
shape."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from farrier.errors import FarrierError, UnresolvedShapeError, UnsupportedOperatorError
from farrier.frontends.builder.limits import MisfitError
from farrier.frontends.builder.names import Body
from farrier.frontends.builder.node import RawNode
from farrier.ir.dim import Question, Undecided, symbols
from farrier.ops import Mismatch, NotStatic, NotSupported, lookup, names

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


class AtHand:
    """The context manager in which the nodes for one node of the model are added. It converts
    exceptions to errors that name the model's node.

    `form` is the node that is being added, in terms of Farrier's operators: an exception about
    operand i refers to operand i of `form`.
    """

    def __init__(self, builder: Builder, node: RawNode) -> None:
        self._builder, self._node = builder, node
        self.form = node

    def __enter__(self) -> AtHand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is not None:
            named = _named(self._builder, self._node.where, self.form, error)
            if named is not None:
                raise named from error


def _named(
    builder: Builder, where: str, form: RawNode, error: BaseException
) -> FarrierError | None:
    """Return an exception as a FarrierError whose message starts with `where`, the description of
    the node; `form` is the node in terms of Farrier's operators. Return None for an exception that
    must be raised unchanged."""
    match error:
        case NotSupported():
            return UnsupportedOperatorError(f"{where}: {error} is not supported")
        case NotStatic():
            return UnresolvedShapeError(
                f"{where}: {_text(builder, str(error))}",
                hint="make it a constant: values may decide how long an axis is, not what is done",
                deciding=_deciding(builder, form, error),
            )
        case Undecided():
            return UnresolvedShapeError(
                f"{where}: {_text(builder, str(error))}",
                hint=_hint(builder, error.question),
                deciding=inputs_behind(builder, builder.values.bound),
            )
        case Mismatch():
            return MisfitError(f"{where}: {_text(builder, str(error))}")
        case ArithmeticError() | AssertionError() | LookupError() | TypeError() | ValueError():
            # Attributes of wrong types and lengths surface as these: the model is at fault.
            return MisfitError(f"{where} is malformed: {type(error).__name__}: {error}")
    return None


def inputs_behind(builder: Builder, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the model's inputs on which any of the values `names` depend."""
    wanted = set(names)
    body: Body | None = builder.values.body
    while body is not None:
        for earlier in reversed(body.nodes):
            if any(value.name in wanted for value in earlier.outputs):
                wanted.update(value.name for value in earlier.inputs if value is not None)
        captures = body.captured.values()
        wanted.update(outside.name for outside, inside in captures if inside.name in wanted)
        body = body.parent
    return tuple(name for name, value in builder.inputs.items() if value.name in wanted)


def _text(builder: Builder, message: str) -> str:
    """Return a message in which symbols such as s0 and k1 are replaced by the model's names of
    dims."""
    names = {symbol: size.name for symbol, size in builder.data_sizes.defined.items()}
    of_inputs = builder.signature.text(message)
    return re.sub(r"\b[kd]\d+\b", lambda match: names.get(match[0], match[0]), of_inputs)


def _hint(builder: Builder, question: Question) -> str:
    """Return a hint for the error that the comparison of sizes `question` is undecided."""
    defined = builder.data_sizes.defined
    nodes = {
        defined[symbol.name].key[0]
        for symbol in symbols((question.extent,))
        if symbol.name in defined
    }
    if nodes:
        which = " and ".join(repr(node) for node in sorted(nodes))
        return f"have the size that {which} computes from values follow from shapes, or be fixed"
    return "give --shape numbers, or ranges in which this does not change"


def _deciding(builder: Builder, node: RawNode, error: NotStatic) -> tuple[str, ...]:
    """Return the names of the model's inputs that the user could fix to avoid the error: the node
    needs constants as some operands, and these operands are computed from the returned inputs."""
    deciding: Iterable[str] = () if error.operands is None else error.operands
    if error.operands is None and node.op in names():
        deciding = filter(None, map(node.input, lookup(node.op).static))
    return inputs_behind(builder, {builder.values.names[name].name for name in deciding})
