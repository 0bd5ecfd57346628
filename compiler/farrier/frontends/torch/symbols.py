"""Parse formulas of sizes in sympy's notation, by Python's grammar; they are never evaluated.

Mul(Integer(2), Symbol('s26', positive=True, integer=True))   →   {s26: 2}, 0
"""

from __future__ import annotations

import ast
import dataclasses
import re

from farrier.errors import InvalidModelError

_MOST_CHARACTERS = 10_000  # Of one formula.
# Names, numbers, text and punctuation. For other text Python's grammar may print warnings.
_TOKENS = re.compile(
    r"(?:[A-Za-z_]\w*+|[0-9]++(?![A-Za-z_])|'[^'\\\n]*+'|[-+*/=().,: ])*+", re.ASCII
)


@dataclasses.dataclass(frozen=True, slots=True)
class Linear:
    """A linear formula: a sum of multiples of symbols, plus a constant."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    def plus(self, other: Linear) -> Linear:
        """Return the sum of this formula and another one."""
        terms = dict(self.terms)
        for name, factor in other.terms:
            terms[name] = terms.get(name, 0) + factor
        left = tuple(sorted((name, factor) for name, factor in terms.items() if factor))
        return Linear(left, self.constant + other.constant)

    def times(self, factor: int) -> Linear:
        """Return this formula multiplied by an integer."""
        terms = tuple((name, own * factor) for name, own in self.terms) if factor else ()
        return Linear(terms, self.constant * factor)


def linear(text: str) -> Linear | None:
    """Parse a formula; return None if it is not linear in its symbols. Raises InvalidModelError for
    text that is not a formula."""
    if len(text) > _MOST_CHARACTERS or not _TOKENS.fullmatch(text):
        raise _malformed(text)
    try:
        return _linear(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise _malformed(text) from error


def _linear(node: ast.expr) -> Linear | None:
    match node:
        case ast.Call(func=ast.Name(id="Integer"), args=[number]):
            return Linear((), _number(number))
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]):
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"the symbol {name!r}")
            return Linear(((name, 1),))
        case ast.Call(func=ast.Name(id="Add"), args=parts):
            return _sum(parts)
        case ast.Call(func=ast.Name(id="Mul"), args=parts):
            return _product(parts)
        case ast.Call(func=ast.Name()):
            return None  # Floors, remainders, greatest and least: not linear.
        case ast.Constant() | ast.UnaryOp():
            return Linear((), _number(node))
    raise ValueError(f"an expression of the kind {type(node).__name__}")


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    raise ValueError("a number is expected")


def _sum(parts: list[ast.expr]) -> Linear | None:
    total = Linear(())
    for part in map(_linear, parts):
        if part is None:
            return None
        total = total.plus(part)
    return total


def _product(parts: list[ast.expr]) -> Linear | None:
    total = Linear((), 1)
    for part in map(_linear, parts):
        if part is None or (part.terms and total.terms):
            return None
        total = part.times(total.constant) if part.terms else total.times(part.constant)
    return total


def _malformed(text: str) -> InvalidModelError:
    return InvalidModelError(
        f"the .pt2 file has a size that is not a formula: {text[:200]!r}",
        hint='save it again with torch.export.save(exported_program, "model.pt2")',
    )
