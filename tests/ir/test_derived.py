"""Constants that are made of constants where they are packed."""

import numpy as np
import pytest

from farrier.artifact import container
from farrier.artifact.params import ParamArena
from farrier.errors import CompilerError
from farrier.ir.graph import Constant, Derived, Graph, Value
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.types import DType, Layout, TensorType
from farrier.ops.verify import verify
from farrier.passes.runner import arrays_of


def constant(name, array):
    return Constant(Value(name, TensorType(DType.from_numpy(array.dtype), array.shape)), array)


@pytest.fixture
def weights():
    rng = np.random.default_rng(3)
    return constant("w", rng.standard_normal((37, 611)).astype(np.float32))


@pytest.fixture
def calls():
    return []


@pytest.fixture
def transposed(weights, calls):
    """Its function notes each call."""
    kind = TensorType(DType.F32, (611, 37))

    def transpose(array):
        calls.append(array.shape)
        return array.T.view()

    return Constant(Value("t", kind), Derived(kind, (weights,), transpose, "transposed"))


def test_it_is_made_where_it_is_asked_for_and_kept_where_that_is_wanted(weights, transposed, calls):
    assert not calls
    for _ in range(2):
        np.testing.assert_array_equal(transposed.made(), weights.data.T)
    assert len(calls) == 2
    for _ in range(3):
        assert transposed.data is transposed.data
        assert transposed.made() is transposed.data
    assert len(calls) == 3
    assert not transposed.data.flags.writeable


def test_the_arena_packs_it_without_keeping_it(weights, transposed, calls):
    arena = ParamArena()
    layout = Layout.blocked(2, 1, 8)
    offset, plain = arena.add(transposed, layout), arena.add(weights, None)
    assert arena.add(transposed, layout) == offset
    assert not calls
    packed = arena.pack()
    assert packed.digest == container.digest(packed.view)
    assert len(calls) == 1
    assert "data" not in vars(transposed.content)
    first = np.frombuffer(packed.view[offset : offset + 611 * 40 * 4], np.float32)
    np.testing.assert_array_equal(layout.unpack(first, (611, 37)), weights.data.T)
    second = np.frombuffer(packed.view[plain : plain + weights.data.nbytes], np.float32)
    np.testing.assert_array_equal(second.reshape(37, 611), weights.data)


def test_the_digest_is_of_what_it_is_made_of(weights, transposed, calls):
    other = constant("w", weights.data + 1)
    again = Derived(transposed.value.type, (weights,), np.transpose, "transposed")
    unlike = Derived(transposed.value.type, (other,), np.transpose, "transposed")
    assert transposed.digest == Constant(transposed.value, again).digest
    assert transposed.digest != Constant(transposed.value, unlike).digest
    assert not calls


def test_it_equals_the_array_that_it_is(weights, transposed):
    assert transposed == Constant(transposed.value, weights.data.T)
    assert transposed != Constant(transposed.value, weights.data.T + 1)


def test_text_names_it_and_reads_back(transposed):
    graph = Graph("g", (), (transposed,), (), (transposed.value,))
    verify(graph)
    assert f'constant("{transposed.digest}")' in print_ir(graph)
    assert parse_ir(print_ir(graph), arrays_of(graph)) == graph


def test_a_graph_that_says_another_type_is_refused(weights, transposed):
    wrong = Value("t", TensorType(DType.F32, (37, 611)))
    graph = Graph("g", (), (Constant(wrong, transposed.content),), (), (wrong,))
    with pytest.raises(CompilerError, match=r"t: f32\[37, 611\].*derived as f32\[611, 37\]"):
        verify(graph)


def test_constants_of_one_content_are_known_without_reading_it(weights, transposed, monkeypatch):
    """As two imports of one model have them: for all sizes, and for one."""
    stored = weights.data.tobytes()
    views = [np.frombuffer(memoryview(stored)[4:], np.float32) for _ in range(2)]
    first, second = (constant("w", view.reshape(2, -1)) for view in views)
    shorter = constant("w", views[0][1:])
    twice = [
        Constant(
            transposed.value, Derived(transposed.value.type, (source,), np.transpose, "transposed")
        )
        for source in (first, second)
    ]
    with monkeypatch.context() as without:
        without.setattr("hashlib.sha256", None)
        assert first.identity == second.identity != shorter.identity
        assert twice[0].identity == twice[1].identity != first.identity
    copies = [constant("w", array.copy()) for array in (weights.data, weights.data, -weights.data)]
    assert copies[0].identity == copies[1].identity != copies[2].identity
