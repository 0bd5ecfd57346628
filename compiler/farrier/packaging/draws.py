"""Draw random inputs for a model, in several ways, because not all of them lead to a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.artifact.manifest import TensorSpec
from farrier.errors import InputMismatchError
from farrier.ir.graph import Graph, Value
from farrier.ir.special import convert
from farrier.ir.strings import random_strings, strings_of
from farrier.ir.types import DType
from farrier.ops import Trait, lookup
from farrier.runtime.artifact import Artifact

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

# The draws of few integers. They repeat after at most 9: a model compares an input with at most 8
# numbers (`TensorSpec.distinguished_values`), and other numbers follow.
SEEDS = 16
# The draws over whole types, which come first. The first usually decides; a second one is cheap.
_WHOLE = 2
# Integers of up to this number of bits are data (pixels, quantized numbers), whatever operators
# read them.
_FEW_BITS = 16
# Vectors of up to this number of integers may be sizes: few tensors have more axes.
_MOST_SIZES = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """The arrays of all inputs. `is_whole` means that integers were drawn from the full range of
    their types, which may lead a model to infinities; smaller integers verify more then."""

    arrays: Arrays
    is_whole: bool = False


def draws(
    specs: Sequence[TensorSpec], numbers: frozenset[str] = frozenset(), below: int = 2
) -> Iterator[Draw]:
    """Yield random inputs in the order in which they should be tried until one leads to a result.

    First, integers of up to 16 bits, and wider ones of the inputs named in `numbers`, are drawn
    from the full range of their type. Then all integers are at least 0 and less than `below`, as in
    `random_inputs`. Last, vectors of few elements hold plausible sizes: ones, an inferred size
    (-1), the shape of another input, equal parts of an axis.
    """
    wholes = {spec.name for spec in specs if _is_number(spec, numbers)}
    for seed in range(_WHOLE if wholes else 0):
        drawn = random_inputs(specs, seed, below)
        generator = np.random.default_rng((below, seed))
        for spec in specs:
            if spec.name in wholes:
                drawn[spec.name] = _any_of(spec, generator)
        yield Draw(drawn, is_whole=True)
    for seed in range(SEEDS):
        yield Draw(random_inputs(specs, seed, below))
    yield from map(Draw, _with_sizes(specs))


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0, below: int = 2) -> Arrays:
    """Return one array of the typical shape for each input.

    Floats are normally distributed and strings are words. Integers are at least 0 and less than
    `below`: 0 or 1 by default, because they are token ids, masks and lengths, and any table has two
    rows. An input that the model compares with certain numbers holds one of these, a different one
    for each seed; once they are used up, the input is drawn like the others.
    """
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in specs:
        dtype = spec.element
        if spec.is_strings:
            arrays[spec.name] = strings_of(random_strings(generator, spec.typical_shape))
        elif seed % (len(spec.distinguished_values) + 1) < len(spec.distinguished_values):
            compared = spec.distinguished_values[seed % (len(spec.distinguished_values) + 1)]
            arrays[spec.name] = np.full(spec.typical_shape, compared).astype(dtype.numpy)
        elif dtype.is_float:
            arrays[spec.name] = convert(generator.standard_normal(spec.typical_shape), dtype)
        else:
            arrays[spec.name] = convert(generator.integers(0, below, spec.typical_shape), dtype)
    return arrays


def runnable_inputs(artifact: Artifact) -> Arrays:
    """Return random inputs with which the artifact runs without reaching a failing branch or check;
    if a fixed number of draws contains none, return any random inputs."""
    inputs = random_inputs(artifact.manifest.asked)
    if not any(check.reason or check.needs for check in artifact.manifest.checks):
        return inputs
    for seed in range(SEEDS):
        drawn = random_inputs(artifact.manifest.asked, seed)
        try:
            artifact.session().run(drawn)
        except InputMismatchError:
            continue
        return drawn
    return inputs


def typical_states(artifact: Artifact) -> Arrays:
    """Return random values of typical shape for the states of an artifact."""
    manifest = artifact.manifest
    held = {state.input for state in manifest.state}
    return random_inputs([spec for spec in manifest.inputs if spec.name in held])


def numbers_of(graph: Graph, names: Mapping[str, str]) -> frozenset[str]:
    """Return the integer inputs of a graph that are only used in arithmetic, so that any value is
    valid. `names` maps the graph's names to the names to return."""
    consumers = graph.consumers()

    def is_number(value: Value) -> bool:
        seen, left = {value.name}, [value.name]
        while left:
            for node in consumers.get(left.pop(), ()):
                if not lookup(node.op).has(Trait.TOTAL):
                    return False
                for out in node.outputs:
                    if out.name not in seen and out.type.dtype is not DType.BOOL:
                        seen.add(out.name)
                        left.append(out.name)
        return True

    return frozenset(
        names[value.name]
        for value in graph.inputs
        if value.type.dtype.is_integer and is_number(value)
    )


def _is_number(spec: TensorSpec, numbers: frozenset[str]) -> bool:
    """Check whether an input is drawn from the full range of its type, as a number and not as an
    index or a size."""
    dtype = spec.element
    if spec.is_strings or spec.distinguished_values or not dtype.is_integer or dtype is DType.BOOL:
        return False
    return dtype.bits <= _FEW_BITS or spec.name in numbers


def _any_of(spec: TensorSpec, generator: np.random.Generator) -> npt.NDArray[Any]:
    least, most = spec.element.limits
    wide = np.int64 if least < 0 else np.uint64
    drawn = generator.integers(least, most, spec.typical_shape, wide, endpoint=True)
    return drawn.astype(spec.element.numpy)


def _with_sizes(specs: Sequence[TensorSpec]) -> Iterator[Arrays]:
    """Yield random inputs for models whose short vectors are sizes: integer vectors hold plausible
    sizes, and float vectors hold scales of 1."""
    vectors = [
        spec
        for spec in specs
        if len(spec.typical_shape) == 1 and 0 < spec.typical_shape[0] <= _MOST_SIZES
    ]
    forms = {
        spec.name: list(_sizes(spec, [other.typical_shape for other in specs if other is not spec]))
        for spec in vectors
        if spec.element.is_integer and spec.element is not DType.BOOL
    }
    for number in range(max(map(len, forms.values()), default=0)):
        drawn = random_inputs(specs, number)
        for spec in vectors:
            if spec.name in forms:
                sizes = forms[spec.name][min(number, len(forms[spec.name]) - 1)]
                drawn[spec.name] = np.array(sizes).astype(spec.element.numpy)
            elif spec.element.is_float:
                drawn[spec.name] = np.ones_like(drawn[spec.name])
        yield drawn


def _sizes(spec: TensorSpec, shapes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield plausible sizes for an input that is a short integer vector. `shapes` are the shapes of
    the other inputs."""
    (count,) = spec.typical_shape
    yield [1] * count
    for shape in shapes:
        if len(shape) == count:
            yield list(shape)
    if spec.element.is_signed:
        yield [-1] + [1] * (count - 1)
        yield [1] * (count - 1) + [-1]
    for extent in dict.fromkeys(extent for shape in shapes for extent in shape):
        if extent >= count:
            yield [extent // count] * (count - 1) + [extent - extent // count * (count - 1)]
