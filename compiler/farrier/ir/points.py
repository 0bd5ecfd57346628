"""Evaluate scalar expressions in numpy at many points at once."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, assert_never

import numpy as np

from farrier.errors import CompilerError
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.special import (
    FUNCTIONS,
    convert,
    mul_high,
    real_power,
    round_tf32,
    swish,
    whole_power,
)
from farrier.ir.types import DType


@dataclasses.dataclass(frozen=True)
class Points(abc.ABC):
    """The points at which expressions are evaluated: values of variables as arrays that broadcast
    against each other. `mask` is true at the points whose value is used: a load that a Select
    guards accesses only these."""

    variables: Mapping[str, Any]
    mask: Any = True

    @property
    @abc.abstractmethod
    def owner(self) -> str:
        """The name of the code to which the expressions belong, for error messages."""

    @abc.abstractmethod
    def load(self, load: Load) -> Any:
        """Return the loaded elements at all points. Raises CompilerError for an element outside its
        buffer."""

    def value(self, expr: Expr) -> Any:
        """Return the value of an expression at all points. Raises CompilerError for operands of two
        dtypes, KeyError for a variable without values."""
        match expr:
            case Const(value, dtype):
                return np.asarray(value, dtype.numpy)
            case Var(name):
                return self.variables[name]
            case Size(extent):
                raise CompilerError(f"{self.owner}: {extent} is not bound")
            case Load():
                return self.load(expr)
            case Unary(op, operand):
                return _UNARY[op](self.value(operand))
            case Binary(op, left, right):
                return self._binary(op, self.value(left), self.value(right))
            case Select(condition, then, otherwise):
                chosen = self.value(condition)
                taken = dataclasses.replace(self, mask=self.mask & chosen)
                passed = dataclasses.replace(self, mask=self.mask & ~chosen)
                return np.where(chosen, taken.value(then), passed.value(otherwise))
            case Cast(dtype, operand):
                return convert(np.asarray(self.value(operand)), dtype)
            case ByteTable(entries, dtype, operand):
                return np.frombuffer(entries, dtype.numpy)[self.value(operand).view(np.uint8)]
            case Reduce():
                raise CompilerError(f"{self.owner} reduces below its root")
            case _:
                assert_never(expr)

    def _binary(self, op: BinaryOp, left: Any, right: Any) -> Any:
        if left.dtype != right.dtype:
            raise CompilerError(f"{self.owner}: {op} of {left.dtype} and {right.dtype}")
        return BINARY[op](left, right)


def _divide(left: Any, right: Any) -> Any:
    return left / right if DType.from_numpy(left.dtype).is_float else left // right


def _power(left: Any, right: Any) -> Any:
    of = real_power if DType.from_numpy(left.dtype).is_float else whole_power
    return of(left, right)


_UNARY: dict[UnaryOp, Callable[[Any], Any]] = {
    UnaryOp.NEG: np.negative,
    UnaryOp.ABS: np.abs,
    UnaryOp.SQRT: np.sqrt,
    UnaryOp.FLOOR: np.floor,
    UnaryOp.CEIL: np.ceil,
    UnaryOp.ROUND: np.rint,
    UnaryOp.ROUND_TF32: round_tf32,
    UnaryOp.NOT: np.logical_not,
    **{UnaryOp(name): function for name, function in FUNCTIONS.items()},
}
BINARY: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: _divide,
    BinaryOp.MOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.POW: _power,
    BinaryOp.SWISH: swish,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
    BinaryOp.BIT_AND: np.bitwise_and,
    BinaryOp.BIT_OR: np.bitwise_or,
    BinaryOp.BIT_XOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.MUL_HIGH: mul_high,
}
