"""StableHLO that is damaged, or that Farrier does not compile."""

import contextlib
import random

import pytest

import farrier
from farrier.errors import FarrierError, InvalidModelError, UnsupportedOperatorError
from farrier.frontends.stablehlo.text import read_module
from tests.frontends.stablehlo.writer import function, module

GOOD = module(
    "x:f2x3",
    "c = constant <{value = dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>}> : () -> "
    "f2x3",
    "y = add x c : f2x3 f2x3 -> f2x3",
    returns="y:f2x3",
)


def refused(text, error=InvalidModelError):
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(error) as caught:
        farrier.compile(data, verify=False)
    return str(caught.value)


def test_bytecode_and_the_readable_form_name_the_command():
    assert "farrier convert" in refused(b"ML\xefR\rStableHLO_v1.0.0")
    assert "generic form" in refused("module @jit_f {\n  func.func public @main() {\n  }\n}\n")


def test_a_serialized_export_is_named():
    exported = b"<\0\0\0" + bytes(60) + b"ML\xefR\rStableHLO_v1.0.0" + bytes(64)
    assert "an export of JAX" in refused(exported)
    assert "web pages" in refused("<!doctype html><html></html>" + " " * 80)


def test_unknown_operations_are_named_all_at_once_with_their_lines():
    text = module(
        "x:f2",
        "a = rng_bit_generator x : f2 -> f2",
        'b = custom_call a <{call_target_name = "lapack_sgeqrf"}> : f2 -> f2',
        "c = rng_bit_generator b : f2 -> f2",
        returns="c:f2",
    ).replace("(%x) ", "(%x) ", 1)
    text = text.replace("-> (tensor<2xf32>)\n", '-> (tensor<2xf32>) loc("net.py":7:1)\n', 1)
    message = refused(text, UnsupportedOperatorError)
    assert "2 operations" in message
    assert "rng_bit_generator ×2 (first at net.py:7)" in message
    assert "custom_call @lapack_sgeqrf ×1" in message


def test_types_that_farrier_lacks_are_named():
    text = GOOD.replace("f32", "complex<f32>").replace(
        "dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]>", "dense<(1.0, 2.0)>"
    )
    assert "complex<f32>" in refused(text, UnsupportedOperatorError)


@pytest.mark.parametrize(
    ("elements", "element"),
    [("300", "i8"), ("-1", "ui8"), ("1.5", "i32"), ("true", "i32"), ("9" * 5000, "i32")],
)
def test_elements_that_are_not_of_their_type_are_refused(elements, element):
    text = GOOD.replace("<{value", f"<{{k = dense<{elements}> : tensor<{element}>, value")
    assert f"tensor<{element}> has elements" in refused(text)


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "F" * 500])
def test_numbers_of_thousands_of_digits_are_refused(number):
    assert "a shorter number" in refused(GOOD.replace("<{value", f"<{{k = {number}, value"))
    size = GOOD.replace("<{value", f"<{{k = dense<1> : tensor<{'9' * 5000}xi32>, value")
    assert "element type" in refused(size, UnsupportedOperatorError)


def test_locations_that_double_at_each_step_are_read_once():
    doubling = "".join(
        f"#loc{at} = loc(callsite(#loc{at + 1} at #loc{at + 1}))\n" for at in range(60)
    )
    text = module("x:f2", "y = negate x : f2 -> f2", returns="y:f2")
    text = text.replace("-> (tensor<2xf32>)\n", "-> (tensor<2xf32>) loc(#loc0)\n", 1)
    read = read_module(f'{doubling}#loc60 = loc("net.py":7:1)\n{text}')
    assert read.main.body.operations[0].line == "net.py:7"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("main", "other", "no function main"),
        ("%c)", "%d)", "nothing defines the value %d"),
        ("6.0]]", "6.0, 7.0]]", "has 7 elements"),
        ("\n}) : () -> ()\n}", "\n} : () -> ()\n}", "should have"),
        ("dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]>", 'dense<"0x0102">', "has 2 bytes"),
        ("dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]>", 'dense<"0xZZ">', "hexadecimal"),
    ],
)
def test_damaged_modules_say_what_is_wrong(old, new, message):
    assert message in refused(GOOD.replace(old, new))


def test_functions_that_call_themselves_end():
    text = module(
        "x:f2",
        "y = func.call x <{callee = @again}> : f2 -> f2",
        returns="y:f2",
        functions=[
            function("again", "a:f2", ["b = func.call a <{callee = @again}> : f2 -> f2"], "b:f2")
        ],
    )
    assert "calls itself" in refused(text)


def test_deep_nesting_ends():
    deep = "[" * 5000
    assert "too deeply" in refused(GOOD.replace("<{value", f"<{{deep = {deep}, value"))


def test_random_damage_ends_in_an_error_of_farrier():
    draw = random.Random(7)
    for _ in range(400):
        text = list(GOOD)
        for _ in range(draw.randrange(1, 5)):
            place = draw.randrange(len(text))
            mark = draw.choice(["<", ">", '"', "%", "9", "x", ""])
            text[place : place + draw.randrange(3)] = mark
        with contextlib.suppress(FarrierError):
            read_module("".join(text))
