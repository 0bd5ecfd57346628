"""An operator: a name, a kind for the fusion pass, traits, and rules.

Passes ask an operator for its traits and rules, and not for its name. A new operator declares with
them how passes may treat it, so that no pass changes.

Attributes reach the rules as a mapping; constants that an operator reads while types are inferred
(a Reshape's shape, a Slice's starts) are its `static` operands and reach `infer` by position. They
may hold dims (arrays of dtype object), as shapes may. Where a rule's outcome depends on the value
of a symbol, it raises Undecided.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeGuard

import numpy as np

from farrier.ir.dim import Dim, Extent, Undecided, number
from farrier.ir.expr import Buffer
from farrier.ir.graph import Attribute, Node, Value
from farrier.ir.special import convert, round_tf32
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.traits import Moves, Product, Trait

if TYPE_CHECKING:
    import numpy.typing as npt

    from farrier.ops.builder import Builder
    from farrier.ops.derivative import Adjoint
    from farrier.ops.layout import LayoutRule
    from farrier.ops.nest import LoopBuilder
    from farrier.ops.positions import PositionRule
    from farrier.ops.window import Window

    Array: TypeAlias = npt.NDArray[Any]
else:
    Array = Any

Attrs: TypeAlias = Mapping[str, Attribute]
Types: TypeAlias = Sequence[TensorType | None]
Constants: TypeAlias = Mapping[int, Array]
Arrays: TypeAlias = Sequence[Array | None]
Buffers: TypeAlias = Sequence[Buffer | None]
Infer: TypeAlias = Callable[[Types, Constants, Attrs], tuple[TensorType, ...]]
Reference: TypeAlias = Callable[[Arrays, Attrs], tuple[Array, ...]]
Compute: TypeAlias = Callable[["Builder", Node, Buffers], tuple[Buffer, ...]]
NestRule: TypeAlias = Callable[["LoopBuilder", Node], None]
Data: TypeAlias = Callable[[Value | None], Array | None]
MoveRule: TypeAlias = Callable[[Node], Moves | None]
SymbolicRule: TypeAlias = Callable[[Arrays, Attrs, Sequence[TensorType]], Sequence[Array] | None]
# The names of the gradients by the operands; None stands for a gradient of 0.
DerivativeRule: TypeAlias = Callable[["Adjoint"], Sequence[str | None]]
TypeRule: TypeAlias = Callable[[Types, Attrs], Array]
AffineRule: TypeAlias = Callable[[Node, Data], tuple[Array, Array] | None]


class Kind(enum.StrEnum):
    """The access pattern of an operator, how its output elements depend on its inputs. The fusion
    pass decides by it which operators may share a kernel."""

    ELEMENTWISE = "elementwise"  # output[i] reads every input at i, or at i broadcast
    INJECTIVE = "injective"  # output[i] is one input element, found by index arithmetic, or none
    REDUCTION = "reduction"  # output[i] reads many elements of one input
    CONTRACTION = "contraction"  # output[i] is a sum of products of two inputs
    VIEW = "view"  # It has the same elements in the same row-major order.
    NEST = "nest"  # It has a loop nest instead of a tensor expression.
    OPAQUE = "opaque"  # It is known only as a constant, as Shape is.
    CONTROL = "control"  # runs its regions


class Facts(TypedDict, total=False):
    """Optional fields of an operator, passed on by functions that declare several operators of one
    form."""

    traits: Trait
    copies: Callable[[Node, Data], bool]
    symbolic: SymbolicRule
    derivative: DerivativeRule
    affine: AffineRule
    neutral: float
    joined_by: str
    instructions: int


class Mismatch(ValueError):
    """Error: two facts about a node contradict each other. The message names both facts, and the
    caller adds the node."""


class NotStatic(ValueError):
    """Error: a shape depends on a value known only at run time. `operands` are the positions or
    names of the operands responsible, or None for the operator's static operands."""

    def __init__(self, message: str, operands: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.operands = operands


class NotSupported(ValueError):
    """Error: a valid ONNX form of an operator that Farrier does not compile."""


@dataclasses.dataclass(frozen=True, slots=True)
class Threaded:
    """Loops of an operator for devices with thousands of threads. `lines(node, data)` returns the
    number of threads that the operator's ordinary loops would occupy, to decide between the two."""

    nest: NestRule
    lines: Callable[[Node, Data], Extent]


THREADED = "threaded"  # The attribute of nodes that have such loops.


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ONNX's newest opset, or an internal operator of Farrier.

    `infer(types, constants, attrs)` returns the outputs' types. Omitted inputs are None, and
    constants are in `constants` by position. Raises Mismatch, NotStatic, NotSupported or Undecided.
    `reference(arrays, attrs)` defines the semantics in numpy, in the dtype of its inputs.
    `compute(builder, node, buffers)` declares the stages; for an operator of kind NEST, `nest(nest,
    node)` writes the loops instead. An operator with neither can only be constant-folded. `static`
    are the positions of operands whose value must be constant when compiling: they are constants of
    the region that contains the node, never buffers. `explicit(types, attrs)` returns the
    attributes with every default written out. A contraction's attribute `accumulator` is the dtype
    of its sums and of its result, if that is not the dtype of its operands. With its attribute
    `factors='tf32'`, the factors are rounded to tf32 before they are multiplied.

    All further rules are optional. Their parameter `data` is a function that returns the content of
    a constant, and None for a value known only at run time. `traits` and `product` are properties
    that passes read. `moves` describes how the results consist of unchanged elements of the data
    operands. It is None if the operator computes new elements, and a function of the node if that
    depends on attributes. `copies(node, data)` checks that a node returns its first input
    unchanged, given that both have the same type. `symbolic(arrays, attrs, kinds)` returns the
    results, of types `kinds`, for arrays of symbolic sizes (`ops/symbolic.py`), and None if they
    must be computed at run time. An operator that moves elements does not need this rule, because
    its reference also moves symbolic elements. `from_types(types, attrs)` returns the result of an
    operator that reads only the types of its inputs, if the type of the result is static.
    `derivative(adjoint)` adds the nodes that compute the gradients by the operands from the
    gradient by the result (`ops/derivative.py`). `in_place(node)` returns the node that overwrites
    its first input, to replace `node`, which copies that input; None if a copy is necessary.
    `affine(node, data)` returns scale and shift, in float64 and per channel, of a node that
    computes `x * scale + shift` of its first input, and None for any other node. `neutral` is the
    value of the second operand for which the result equals the first operand. `joined_by` is the
    reduction that combines the results for pieces of an operand into the result for the entire
    operand. `window(node)` returns the window that slides over the image in the first input.
    `layout(node, images)` decides how a node runs on images in a blocked layout (`ops/layout.py`).
    `positions` yields the axes whose elements are read by position, which must not be empty
    (`ops/positions.py`). `threaded` are alternative loops, which replace those of `nest` in a node
    with the attribute `THREADED`. `instructions` is the approximate number of instructions for a
    vector of elements.
    """

    name: str
    kind: Kind
    infer: Infer
    reference: Reference
    compute: Compute | None
    static: frozenset[int] = frozenset()
    explicit: Callable[[Types, Attrs], Attrs] | None = None
    nest: NestRule | None = None
    threaded: Threaded | None = None
    counts: bool = False  # Its last output is the extent that data decides.
    traits: Trait = Trait.NONE
    product: Product | None = None
    moves: Moves | MoveRule | None = None
    copies: Callable[[Node, Data], bool] | None = None
    symbolic: SymbolicRule | None = None
    from_types: TypeRule | None = None
    derivative: DerivativeRule | None = None
    in_place: Callable[[Node], Node | None] | None = None
    affine: AffineRule | None = None
    neutral: float | None = None
    joined_by: str = ""
    window: Callable[[Node], Window] | None = None
    layout: LayoutRule | None = None
    positions: PositionRule | None = None
    instructions: int = 1

    def matches(self, node: Node | None) -> TypeGuard[Node]:
        """Check whether `node` is a node of this operator."""
        return node is not None and node.op == self.name

    def has(self, trait: Trait) -> bool:
        """Check whether the operator has a trait."""
        return trait in self.traits

    def loops_of(self, node: Node) -> NestRule | None:
        """Return the rule that writes the loops of a node; None if the node is a tensor
        expression."""
        if self.threaded is not None and node.attr(THREADED):
            return self.threaded.nest
        return self.nest

    def data_operands(self, node: Node) -> tuple[Value | None, ...]:
        """Return the inputs whose elements a node moves or reduces, in contrast to inputs such as
        shapes, axes and indices."""
        return node.inputs if Trait.JOINS in self.traits else node.inputs[:1]

    def moved(self, node: Node) -> Moves | None:
        """Return how a node moves the elements of its data operands; None if it computes new
        elements."""
        return self.moves(node) if callable(self.moves) else self.moves

    def copied(self, node: Node, data: Data) -> Value | None:
        """Return the first input of a node if the node returns it unchanged, else None."""
        x = node.inputs[0] if node.inputs else None
        if self.copies is None or x is None or x.type != node.outputs[0].type:
            return None
        return x if self.copies(node, data) else None

    @property
    def moves_elements(self) -> bool:
        """Check whether every node of this operator only moves elements of its data operands."""
        return self.moves in (Moves.ONCE, Moves.REPEATED)

    def evaluate(self, arrays: Arrays, attrs: Attrs, kinds: Sequence[TensorType]) -> list[Array]:
        """Compute the results, of types `kinds`, by `reference`. Arithmetic on narrow floats (fewer
        than 32 bits), for which numpy and ml_dtypes lack functions, is done in f32 and rounded once
        at the end. Conversions (which have an attribute `to`) and operators that move elements use
        the narrow floats directly."""
        computes = self.kind in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION)
        if not computes or "to" in attrs:
            return list(self.reference(arrays, attrs))
        wide = [array if array is None else _as_f32(array) for array in arrays]
        results = self.reference(wide, attrs)
        return [
            convert(result, kind.dtype) if kind.dtype.is_narrow_float else result
            for result, kind in zip(results, kinds, strict=False)
        ]


def always(node: Node, data: Data) -> bool:
    """Return True, as the rule `copies` of operators whose result always equals the first input."""
    return True


def _as_f32(array: Array) -> Array:
    if array.dtype == object or not DType.from_numpy(array.dtype).is_narrow_float:
        return array
    return array.astype(np.float32)


def accumulator(left: DType, right: DType, attrs: Attrs) -> DType:
    """Return the dtype of a contraction's sums: the attribute `accumulator`, else the dtype of its
    operands. Raises Mismatch if the attribute is absent and the operands have different dtypes."""
    if "accumulator" not in attrs and left is not right:
        raise Mismatch(f"one operand is {left} and the other {right}")
    return DType(str(attrs.get("accumulator", left.value)))


def widened(array: Array, attrs: Attrs) -> Array:
    """Return the array of a contraction's operand, for the numpy reference. It is rounded as the
    attribute `factors` requests, and converted to float64 if the sums have a wider dtype than the
    operands, so that the sums are rounded only once."""
    if "factors" in attrs:
        array = round_tf32(array)
    return array.astype(np.float64) if "accumulator" in attrs else array


def rounded(result: Array, attrs: Attrs) -> Array:
    """Round a contraction's result in numpy to the dtype of its sums."""
    if "accumulator" not in attrs:
        return result
    return result.astype(DType(str(attrs["accumulator"])).numpy)


def required(types: Types, position: int) -> TensorType:
    """Return the type of an input; raises Mismatch if the node omits it."""
    kind = types[position] if position < len(types) else None
    if kind is None:
        raise Mismatch(f"input {position} is required but omitted")
    return kind


def present(arrays: Arrays, position: int) -> Array:
    """Return the array of an input; raises Mismatch if the node omits it."""
    array = arrays[position] if position < len(arrays) else None
    if array is None:
        raise Mismatch(f"input {position} is required but omitted")
    return array


def optional(arrays: Arrays, position: int) -> Array | None:
    """Return the array of an input, or None if the node omits it."""
    return arrays[position] if position < len(arrays) else None


def static_extents(
    types: Types, constants: Constants, position: int, what: str
) -> tuple[Extent, ...] | None:
    """Return a static operand of sizes or positions as a flat tuple of numbers and symbolic dims;
    None if the node omits it. Raises NotStatic if it is not constant; `what` names it in the
    message."""
    if position >= len(types) or types[position] is None:
        return None
    if position not in constants:
        raise NotStatic(f"its {what} (input {position}) depends on data known only at run time")
    return to_extents(constants[position])


def static_ints(
    types: Types, constants: Constants, position: int, what: str
) -> tuple[int, ...] | None:
    """Return a static operand of integers as a flat tuple; None if the node omits it. Raises
    NotStatic if it is not constant or contains symbolic dims; `what` names it in the message."""
    extents = static_extents(types, constants, position, what)
    if extents is None:
        return None
    for extent in extents:
        if not isinstance(extent, int):
            raise NotStatic(f"its {what} (input {position}) is {extent}, and must be a number")
    return tuple(number(extent) for extent in extents)


def to_extents(array: Array) -> tuple[Extent, ...]:
    """Return the elements of an integer constant as a flat tuple of numbers and symbolic dims."""
    return tuple(v if isinstance(v, Dim) else int(v) for v in array.reshape(-1).tolist())


def extents_array(extents: Iterable[Extent]) -> Array:
    """Return sizes as an array: of int64, or of dtype object if some are symbolic dims."""
    array = np.array(list(extents), object)
    return array if any(isinstance(extent, Dim) for extent in array) else array.astype(np.int64)


def differ(left: Extent, right: Extent) -> bool:
    """Check whether two extents differ. Raises Undecided if that depends on the values of
    symbols."""
    return left != right and bool(left - right)


def fail_to_agree(left: Extent, right: Extent) -> bool:
    """Check whether two extents differ, for an operator that requires equal ones. If the result
    depends on the values of symbols, the raised Undecided states that they must be equal."""
    try:
        return differ(left, right)
    except Undecided as error:
        raise Undecided(dataclasses.replace(error.question, is_required=True)) from error


def differ_as_a_rule(left: Extent, right: Extent) -> bool:
    """Check whether two extents differ, for an operator that usually gets different ones. If the
    result depends on the values of symbols, the raised Undecided states that they are expected to
    differ."""
    try:
        return differ(left, right)
    except Undecided as error:
        raise Undecided(dataclasses.replace(error.question, expected=False)) from error


def clash(left: Shape, right: Shape) -> bool:
    """Check whether two shapes differ that an operator requires to be equal. Raises Undecided if
    the result depends on the values of symbols."""
    return len(left) != len(right) or any(map(differ, left, right))


def normal_axis(axis: int, rank: int) -> int:
    """Return a possibly negative `axis` counted from the front. Raises Mismatch if a tensor of rank
    `rank` does not have such an axis."""
    if not -rank <= axis < rank:
        raise Mismatch(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def int_attr(attrs: Attrs, name: str, default: int | None = None) -> int:
    """Return an integer attribute; raises Mismatch if it is missing without a default, or not an
    integer."""
    value = attrs.get(name, default)
    if not isinstance(value, int):
        raise Mismatch(f"attribute {name!r} is {value!r}, and must be an integer")
    return value


def float_attr(attrs: Attrs, name: str, default: float) -> float:
    """Return a numeric attribute or its default; raises Mismatch if it is not a number."""
    value = attrs.get(name, default)
    if not isinstance(value, int | float):
        raise Mismatch(f"attribute {name!r} is {value!r}, and must be a number")
    return float(value)


def axis_attr(attrs: Attrs, rank: int, default: int = 0) -> int:
    """Return the attribute `axis`, counted from the front of a tensor of rank `rank`."""
    return normal_axis(int_attr(attrs, "axis", default), rank)


def as_ints(value: Any) -> tuple[int, ...]:
    """Return an attribute that is a list of integers as a tuple."""
    return tuple(int(v) for v in value)
