"""Answer questions about open dims: import the model for the sizes with the answer of the typical
sizes.

A question is a comparison that an operator needs while types are inferred. If its answer depends on
open dims, the import starts again with narrower ranges of these dims, in which the answer is always
the same:

    x: f32[s0, 3, s1, 224], and a pool asks whether 0 > (s1 + 31) // 32 - 2
    ->  s1 in 33..65536, because at s1 = 224 it is not

The sizes that remain are a range, multiples of a number, a sum of other dims, or a single size.
They are recorded with the node that asked as a precondition of the model. If the answer at the
typical sizes makes the model invalid, and the other answer does not, the nearest sizes with the
other answer become the typical sizes.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, TypeVar

from farrier.errors import InvalidModelError, UnresolvedShapeError
from farrier.frontends.builder.data_dims import DataDim, Defined, Key, adopted, in_order, is_causal
from farrier.frontends.builder.local_sizes import ImpliedSizes
from farrier.frontends.builder.narrowing import Narrowing, divisors, narrowings
from farrier.frontends.builder.signature import LENGTH, Signature
from farrier.ir.dim import Question, Relation, Undecided, evaluate, symbols, typical
from farrier.options.shapes import NamedDim, Precondition

_MOST_QUESTIONS = 64
_MOST_TURNS = 8  # Changes of the typical sizes to sizes that an operator implies.
_NEAR = 4096  # Sizes up to this far from a typical one are tried in turn.

T = TypeVar("T", covariant=True)


class Importing(Protocol[T]):
    """An attempt to import a model or a branch, with given types of its inputs."""

    def run(self) -> T:
        """Perform the import and return its result. Raises UnresolvedShapeError, with Undecided as
        the cause, for a question without an answer, and InvalidModelError."""

    @property
    def where(self) -> str:
        """The node that is being built, as messages describe it."""

    @property
    def defined(self) -> Mapping[str, Defined]:
        """The data-dependent sizes by name of symbol, in the order of their definition."""


def settled(
    signature: Signature, begin: Callable[[Signature], Importing[T]], is_branch: bool = False
) -> T:
    """Import a model repeatedly, with narrower ranges of its dims each time, until all comparisons
    of sizes that operators need are decided. Return the result of the last import. `begin` starts
    an import with a signature.

    Raises UnresolvedShapeError for a comparison that narrower ranges cannot decide, and
    InvalidModelError for a model that is invalid at the typical sizes. If an import raises
    ImpliedSizes, its sizes become the typical sizes; with `is_branch`, the exception is raised to
    the caller instead.
    """
    start = signature
    # The previous question, the node that asked it, and the signature at that time.
    asked: tuple[Question, str, Signature] | None = None
    refused: InvalidModelError | None = None
    turns = 0
    for _ in range(_MOST_QUESTIONS):
        importing = begin(signature)
        try:
            return importing.run()
        except UnresolvedShapeError as error:
            undecided = error.__cause__
            if not isinstance(undecided, Undecided):
                raise
            other = _with_expected_answer(start, signature, undecided.question)
            if other is not None and turns < _MOST_TURNS:
                signature = start = other
                asked, turns = None, turns + 1
                continue
            for question, where in _asked(undecided.question, importing):
                signature, question = _with_data(signature, question, importing.defined)
                narrower = narrowed(signature, question, where, in_order(importing.defined))
                if narrower is not None:
                    break
            else:
                raise
            asked = (question, where, signature)
            signature = narrower
        except InvalidModelError as error:
            refused = refused or error
            other = None
            if asked is not None and asked[1] == importing.where and turns < _MOST_TURNS:
                other = _with_other_answer(start, asked[2], asked[0])
            if other is None:
                raise _at_typical_sizes(refused, start) from error
            signature = start = other
            asked, turns = None, turns + 1
        except ImpliedSizes as implied:
            if is_branch:
                raise
            sizes = {dim.symbol: implied.sizes.get(dim.name, 0) // dim.step for dim in start.dims}
            usual = {dim.symbol: sizes[dim.symbol] or dim.typical for dim in start.dims}
            signature = start = dataclasses.replace(
                _with_typical(start, usual), implied=start.implied | implied.sizes.keys()
            )
            asked = None
    raise UnresolvedShapeError(
        f"the model asks more than {_MOST_QUESTIONS} questions about the sizes of its inputs",
        hint="give numbers with --shape",
    )


def _asked(question: Question, importing: Importing[T]) -> Iterator[tuple[Question, str]]:
    """Yield the comparisons that could be decided next, each with a description of the node that
    needs it: first `question`, then, for each data-dependent size in it, the comparison whose
    result would make the size a function of the input shapes (`Builder.defers`)."""
    yield question, importing.where
    for symbol in symbols((question.extent,)):
        size = importing.defined.get(symbol.name)
        if size is not None and size.question is not None:
            yield size.question, size.where


def _with_data(
    signature: Signature, question: Question, defined: Mapping[str, Defined]
) -> tuple[Signature, Question]:
    """Return the signature with an entry for each data-dependent size in the comparison `question`,
    and the comparison rewritten in terms of the symbols of these entries."""
    data, question = adopted(signature.data, question, defined)
    return dataclasses.replace(signature, data=data), question


def narrowed(
    signature: Signature,
    question: Question,
    where: str,
    places: Mapping[Key, int] = MappingProxyType({}),
) -> Signature | None:
    """Return the signature with the ranges of dims restricted to sizes at which the comparison
    `question` has the same result as at the typical sizes; `where` describes the node that needs
    it. `places` is the order in which a run computes the data-dependent sizes.

    Return None if no restriction decides the comparison, or if the result is needed as a number and
    depends on a data-dependent size.
    """
    if not signature.settles(question):
        return None
    order = {size.named.symbol: places.get(key, 0) for key, size in signature.data.items()}
    dims = {dim.symbol: dim for dim in signature.open}
    by_name = {symbol.name: symbol for symbol in symbols((question.extent,))}
    if question.wants_number and any(map(order.get, by_name)):
        return None
    # Later sizes first, because a check can compare a later size with earlier ones.
    asked = {name: by_name[name] for name in sorted(by_name, key=lambda s: -order.get(s, 0))}
    answer = question.answer(typical(question.extent))
    of = [dims[name] for name in asked]
    for narrowing in narrowings(question, answer, of, asked):
        if is_causal(narrowing, question, order) and _decides(narrowing, question, answer):
            narrower = _applied(signature, narrowing, question, answer, where)
            is_same = narrower.types == signature.types and narrower.data == signature.data
            return None if is_same else narrower
    return None


def _decides(narrowing: Narrowing, question: Question, answer: bool) -> bool:
    try:
        return question.answer(narrowing.change(question.extent)) is answer
    except Undecided:
        return False


def _applied(
    signature: Signature, narrowing: Narrowing, question: Question, answer: bool, where: str
) -> Signature:
    names = {dim.symbol: dim.name for dim in signature.open}
    asked = dict.fromkeys(names[symbol.name] for symbol in symbols((question.extent,)))
    types = {
        name: dataclasses.replace(kind, shape=tuple(map(narrowing.change, kind.shape)))
        for name, kind in signature.types.items()
    }
    dims = tuple(
        left for dim in signature.dims if (left := narrowing.dims.get(dim.symbol, dim)) is not None
    )
    data = {
        key: size.narrowed(narrowing, where, signature.text) for key, size in signature.data.items()
    }
    limits = tuple(map(narrowing.change, signature.limits))
    narrower = dataclasses.replace(signature, types=types, dims=dims, data=data, limits=limits)
    if types == signature.types:
        return narrower
    precondition = Precondition(
        where,
        signature.text(question.text),
        answer,
        tuple(asked),
        signature.text(narrowing.needs),
    )
    notices = signature.notices
    fixed = [names[symbol] for symbol, size in narrowing.instead.items() if isinstance(size, int)]
    if (fixed and not question.is_required) or question.expected is not None:
        notices = (*notices, _notice(precondition, fixed or list(asked), bool(fixed)))
    return dataclasses.replace(
        narrower,
        preconditions=(*signature.preconditions, precondition),
        limits=(*limits, narrowing.not_negative),
        notices=notices,
    )


def _notice(precondition: Precondition, names: Sequence[str], is_fixed: bool) -> str:
    """Return a warning that the compiled model does not accept all plausible sizes of the dims
    `names`, because of `precondition`. `is_fixed` means that a single size is left."""
    which = ", ".join(names)
    takes = f"takes one size of {which} alone" if is_fixed else f"does not take every {which}"
    return (
        f"the compiled model {takes}: {precondition}; others are errors of the call (--typical or "
        "--shape compiles it for other sizes)"
    )


def _with_expected_answer(
    start: Signature, signature: Signature, question: Question
) -> Signature | None:
    """Return `start` with other typical sizes, at which the comparison `question` has the result
    that the operator expects (`question.expected`). The default length of sequences is tried first,
    then the nearest sizes. Return None if the typical sizes already have that result, if the
    comparison does not expect one, or if the user chose the sizes."""
    usual = {dim.symbol: dim.typical for dim in signature.dims}
    asked = {symbol.name for symbol in symbols((question.extent,))}
    if question.expected is None or not asked <= usual.keys():
        return None
    if question.answer(typical(question.extent)) is question.expected:
        return None
    for dim in signature.dims:
        size = LENGTH // dim.step
        if dim.symbol not in asked or dim.name in start.pinned or not dim.low <= size <= dim.high:
            continue
        at = evaluate(question.extent, usual | {dim.symbol: size})
        if question.answer(at) is question.expected:
            steps = {first.symbol: first.step for first in start.dims}
            sizes = {first.symbol: first.typical for first in start.dims}
            return _with_typical(start, sizes | {dim.symbol: LENGTH // steps[dim.symbol]})
    return _with_other_answer(start, signature, question)


def _with_other_answer(
    start: Signature, signature: Signature, question: Question
) -> Signature | None:
    """Return `start` with other typical sizes, at which the comparison `question` has the opposite
    result. `signature` has the ranges with which the comparison was needed.

    One dim of the comparison is changed to the nearest size with that result, or all of them to the
    same size. Of these candidates, the one with the fewest elements is chosen. Return None without
    a candidate, or if the user chose the sizes.
    """
    asked = {symbol.name for symbol in symbols((question.extent,))}
    # A data-dependent size may first occur in this question.
    new = {key: DataDim(size.whole, size.whole) for key, size in signature.data.items()}
    start = dataclasses.replace(start, data=new | dict(start.data))
    first = {dim.symbol: dim for dim in start.open}
    usual = {dim.symbol: dim.typical for dim in signature.open}
    free = [dim for dim in signature.open if dim.symbol in asked and dim.name not in start.pinned]
    ways = [[dim] for dim in free] + ([free] if len(free) > 1 else [])
    sizes_of_ways = []
    for together in ways:
        size = _other_size(question, usual, together)
        if size is not None:
            sizes_of_ways.append({dim.symbol: size * dim.step for dim in together})
    if not sizes_of_ways:
        return None
    sizes = {dim.symbol: dim.typical * dim.step for dim in start.open}
    # A size of 0 is chosen only if no other size has the answer.
    best = min(
        sizes_of_ways, key=lambda way: (0 in way.values(), math.prod((sizes | way).values()))
    )
    changed = sizes | best
    return _with_typical(start, {s: size // first[s].step for s, size in changed.items()})


def _other_size(
    question: Question, usual: Mapping[str, int], together: Sequence[NamedDim]
) -> int | None:
    """Return a common value of the dims `together`, near their typical one, at which the comparison
    `question` has the opposite result than at the typical values `usual`. A multiple of the numbers
    by which the comparison divides is preferred, since models are made for such sizes. Return None
    if no value is found."""
    wanted = not question.answer(evaluate(question.extent, usual))

    def does(size: int) -> bool:
        sizes = {**usual, **{dim.symbol: size for dim in together}}
        return size > 0 and question.answer(evaluate(question.extent, sizes)) is wanted

    def at(size: int) -> int:
        return evaluate(question.extent, {**usual, **{dim.symbol: size for dim in together}})

    likely = list(_near(together, question.relation))
    if at(2) != at(1):  # A linear extent has one root, possibly far away.
        likely.append(1 - at(1) // (at(2) - at(1)))
    nearest = next(filter(does, likely), None)
    if nearest is None and wanted and question.relation is Relation.ZERO:  # A shape is empty.
        return 0 if at(0) == 0 and all(dim.low == 0 for dim in together) else None
    if nearest is None or not all(dim.low <= nearest <= dim.high for dim in together):
        return None
    step = max(divisors(question.extent, together[0]), default=1)
    return next(filter(does, (nearest // step * step, -(-nearest // step) * step)), nearest)


def _near(dims: Sequence[NamedDim], relation: Relation) -> Iterator[int]:
    """Yield values in the ranges of all the dims, those nearest to the typical value first."""
    low, high = max(dim.low for dim in dims), min(dim.high for dim in dims)
    usual = dims[0].typical
    for distance in range(1, _NEAR + 1):
        for size in (usual - distance, usual + distance):
            if low <= size <= high:
                yield size
    if relation is Relation.POSITIVE:
        far = (_NEAR << power for power in itertools.count(1))
        yield from itertools.takewhile(lambda size: size <= high, far)


def _with_typical(signature: Signature, sizes: dict[str, int]) -> Signature:
    """Return the signature with other typical sizes, by symbol."""

    def usual(dim: NamedDim) -> NamedDim:
        return dataclasses.replace(dim, typical=sizes.get(dim.symbol, dim.typical))

    dims = tuple(map(usual, signature.dims))
    data = {
        key: dataclasses.replace(size, named=usual(size.named))
        for key, size in signature.data.items()
    }
    narrowing = Narrowing({dim.symbol: dim for dim in dims}, "")
    types = {
        name: dataclasses.replace(kind, shape=tuple(map(narrowing.change, kind.shape)))
        for name, kind in signature.types.items()
    }
    return dataclasses.replace(signature, types=types, dims=dims, data=data)


def _at_typical_sizes(error: InvalidModelError, signature: Signature) -> InvalidModelError:
    """Return the error with a hint that lists the sizes for which the model was imported."""
    if error.hint or not signature.dims:
        return error
    sizes = ", ".join(f"{dim.name}={dim.typical * dim.step}" for dim in signature.dims)
    return type(error)(
        error.message, hint=f"it was read for {sizes}; --typical or --shape gives other sizes"
    )
