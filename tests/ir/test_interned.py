"""Equal values are one object, whoever makes them, as long as somebody has it."""

import concurrent.futures
import dataclasses
import gc
import threading
import weakref

from farrier.ir.dim import Combined, Dim, DimOp, Symbol, dim, maximum
from farrier.ir.expr import Var
from farrier.ir.interned import Interned


@dataclasses.dataclass(frozen=True, eq=False)
class Pair(metaclass=Interned):
    left: object
    right: object


def test_equal_parts_make_one_object():
    assert Pair(1, "a") is Pair(1, "a")
    assert Pair(1, "a") != Pair(2, "a")
    assert Pair(Pair(1, 2), 3) is Pair(Pair(1, 2), 3)


def test_classes_do_not_share_objects():
    assert Combined(DimOp.MIN, 1, 2) != Combined(DimOp.MAX, 1, 2)
    assert Var("h") is Var("h")
    assert Symbol("h", 1, 8, 4) is Symbol("h", 1, 8, 4)
    assert Symbol("h", 1, 8, 4) is not Symbol("h", 1, 8, 5)


def test_forms_are_objects():
    h, w = dim("h", 1, 64), dim("w", 1, 64)
    assert (h + w) * 2 is 2 * w + 2 * h
    assert (h + 3) // 2 is (h + 1) // 2 + 1
    assert maximum(h, w) is maximum(w, h)
    assert isinstance(h, Dim)
    assert h in {dim("h", 1, 64)}


def test_what_nobody_has_is_forgotten():
    left = weakref.ref(Pair("only", "here"))
    gc.collect()
    assert left() is None


def test_threads_get_one_object():
    count = 8
    begin = threading.Barrier(count)

    def made(_number):
        begin.wait()
        return [Pair("shared", number) for number in range(2000)]

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        first, *others = pool.map(made, range(count))
    assert all(left is right for other in others for left, right in zip(first, other, strict=True))
