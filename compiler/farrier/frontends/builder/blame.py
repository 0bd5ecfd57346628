"""Errors of a node, under the names of the model: node, origin, inputs that decide a shape."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from farrier.errors import UnresolvedShapeError, UnsupportedOperatorError
from farrier.frontends.builder.limits import MisfitError
from farrier.frontends.builder.names import Body
from farrier.frontends.builder.node import RawNode
from farrier.ir.dim import Question, Undecided, symbols
from farrier.ops import Mismatch, NotStatic, NotSupported, lookup, names

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


class AtHand:
    """The node of the model that is being built, and `form`, which is that of its nodes in
    Farrier's form whose operands an error is about."""

    def __init__(self, node: RawNode) -> None:
        self.form = node


@contextlib.contextmanager
def blamed(builder: Builder, node: RawNode) -> Iterator[AtHand]:
    """Within it, raise what goes wrong as a FarrierError that names the node."""
    at_hand = AtHand(node)
    where = node.where
    try:
        yield at_hand
    except NotSupported as error:
        raise UnsupportedOperatorError(f"{where}: {error} is not supported") from error
    except NotStatic as error:
        raise UnresolvedShapeError(
            f"{where}: {_text(builder, str(error))}",
            hint="make it a constant: values may decide how long an axis is, not what is done",
            deciding=_deciding(builder, at_hand.form, error),
        ) from error
    except Undecided as error:
        raise UnresolvedShapeError(
            f"{where}: {_text(builder, str(error))}",
            hint=_hint(builder, error.question),
            deciding=inputs_behind(builder, builder.values.bound),
        ) from error
    except Mismatch as error:
        raise MisfitError(f"{where}: {_text(builder, str(error))}") from error
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        # Attributes of wrong types and lengths surface as these: the model is at fault.
        reason = f"{type(error).__name__}: {error}"
        raise MisfitError(f"{where} is malformed: {reason}") from error


def inputs_behind(builder: Builder, names: Iterable[str]) -> tuple[str, ...]:
    """Return the model's inputs from which some values are computed."""
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
    """Return a message about symbols with names that say where they come from."""
    names = {symbol: size.name for symbol, size in builder.data_sizes.defined.items()}
    of_inputs = builder.signature.text(message)
    return re.sub(r"\b[kd]\d+\b", lambda match: names.get(match[0], match[0]), of_inputs)


def _hint(builder: Builder, question: Question) -> str:
    """Return the way out for a question that nothing settles."""
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
    """Return the model's inputs from which the operands that decide a shape are computed."""
    deciding: Iterable[str] = () if error.operands is None else error.operands
    if error.operands is None and node.op in names():
        deciding = filter(None, map(node.input, lookup(node.op).static))
    return inputs_behind(builder, {builder.values.names[name].name for name in deciding})
