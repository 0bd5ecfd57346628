"""Operations of StableHLO against numpy, on modules written by hand."""

import numpy as np
import pytest

import farrier
from tests.frontends.stablehlo.writer import function, module, region

ADD = region("p:f q:f", "r = add p q : f f -> f", returns="r:f")
MOST = region("p:f q:f", "r = maximum p q : f f -> f", returns="r:f")
SECOND = region("p:f q:f", returns="q:f")
LESS = "<{comparison_direction = #stablehlo<comparison_direction LT>}>"
GREATER = "<{comparison_direction = #stablehlo<comparison_direction GT>}>"
FIRST_MOST = region(
    "p:f i:i q:f j:i",
    f"a = compare p q {GREATER} : f f -> b",
    "e = compare p q <{comparison_direction = #stablehlo<comparison_direction EQ>}> : f f -> b",
    f"l = compare i j {LESS} : i i -> b",
    "t = and e l : b b -> b",
    "o = or a t : b b -> b",
    "v = select a p q : b f f -> f",
    "w = select o i j : b i i -> i",
    returns="v:f w:i",
)
ZERO = "z = constant <{value = dense<0.0> : tensor<f32>}> : () -> f"
LOWEST = "m = constant <{value = dense<0xFF800000> : tensor<f32>}> : () -> f"
IMAGES = "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"


def run(text, **inputs):
    artifact = farrier.compile(text.encode(), verify=False)
    return list(artifact.run(inputs).values())


def x(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(text, inputs, *expected):
    for result, want in zip(run(text, **inputs), expected, strict=True):
        want = np.asarray(want)
        assert result.shape == want.shape
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


def test_constants_and_broadcasts_of_every_form():
    text = module(
        "x:f2x3",
        "s = constant <{value = dense<0.5> : tensor<2x3xf32>}> : () -> f2x3",
        'h = constant <{value = dense<"0x0000803F0000004000004040"> : tensor<3xf32>}> : () -> f3',
        "l = constant <{value = dense<[[1.0], [-2.5e+00]]> : tensor<2x1xf32>}> : () -> f2x1",
        "v = broadcast_in_dim h <{broadcast_dimensions = array<i64: 1>}> : f3 -> f2x3",
        "w = broadcast_in_dim l <{broadcast_dimensions = array<i64: 0, 1>}> : f2x1 -> f2x3",
        "t = multiply v w : f2x3 f2x3 -> f2x3",  # Both are repeated along axes.
        "a = add x s : f2x3 f2x3 -> f2x3",
        "y = add a t : f2x3 f2x3 -> f2x3",
        returns="y:f2x3 t:f2x3",
    )
    array = x(2, 3)
    both = np.array([[1.0], [-2.5]], np.float32) * np.array([1, 2, 3], np.float32)
    check(text, {"x": array}, array + 0.5 + both, both)


def test_products_with_batches_and_several_free_axes():
    batches = "lhs_batching_dimensions = [1], rhs_batching_dimensions = [0], "
    dims = "lhs_contracting_dimensions = [3], rhs_contracting_dimensions = [2]"
    text = module(
        "x:f2x3x4x5 y:f3x6x5",
        f"r = dot_general x y <{{dot_dimension_numbers = #stablehlo.dot<{batches}{dims}>}}>"
        " : f2x3x4x5 f3x6x5 -> f3x2x4x6",
        returns="r:f3x2x4x6",
    )
    left, right = x(2, 3, 4, 5), x(3, 6, 5, seed=1)
    check(text, {"x": left, "y": right}, np.einsum("abcd,bed->bace", left, right))


def test_convolutions_stretch_their_image_and_cut_it():
    text = module(
        "x:f1x4x5x2 w:f2x2x2x3",
        f"y = convolution x w <{{{IMAGES}, lhs_dilation = array<i64: 2, 1>, feature_group_count = 1"
        " : i64, batch_group_count = 1 : i64, padding = dense<[[-1, 1], [0, 2]]> : tensor<2x2xi64>,"
        " window_strides = array<i64: 1, 2>, rhs_dilation = array<i64: 1, 2>}>"
        " : f1x4x5x2 f2x2x2x3 -> f1x6x3x3",
        "r = negate y : f1x6x3x3 -> f1x6x3x3",
        returns="r:f1x6x3x3",
    )
    image, weights = x(1, 4, 5, 2), x(2, 2, 2, 3, seed=1)
    wide = np.zeros((1, 7, 5, 2), np.float32)
    wide[:, ::2] = image
    padded = np.pad(wide[:, 1:], ((0, 0), (0, 1), (0, 2), (0, 0)))
    want = np.zeros((1, 6, 3, 3), np.float32)
    for i, j in np.ndindex(6, 3):
        patch = padded[:, i : i + 2, 2 * j : 2 * j + 3 : 2]
        want[:, i, j] = np.einsum("bhwi,hwio->bo", patch, weights)
    check(text, {"x": image, "w": weights}, -want)


def test_windows_are_pools_and_running_sums():
    pool = "window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>"
    text = module(
        "x:f1x4x6x2",
        ZERO,
        LOWEST,
        f"p = reduce_window x m <{{{pool}}}> {{{{{MOST}}}}} : f1x4x6x2 f -> f1x2x3x2",
        f"s = reduce_window x z <{{{pool}}}> {{{{{ADD}}}}} : f1x4x6x2 f -> f1x2x3x2",
        "c = reduce_window x z <{window_dimensions = array<i64: 1, 1, 6, 1>, padding = "
        f"dense<[[0, 0], [0, 0], [0, 5], [0, 0]]> : tensor<4x2xi64>}}> {{{{{ADD}}}}}"
        " : f1x4x6x2 f -> f1x4x6x2",
        returns="p:f1x2x3x2 s:f1x2x3x2 c:f1x4x6x2",
    )
    image = x(1, 4, 6, 2)
    tiles = image.reshape(1, 2, 2, 3, 2, 2)
    running = np.flip(np.cumsum(np.flip(image, 2), 2), 2)
    check(text, {"x": image}, tiles.max((2, 4)), tiles.sum((2, 4)), running)


def test_reductions_with_an_initial_value_and_with_positions():
    text = module(
        "x:f4x6",
        "h = constant <{value = dense<0.5> : tensor<f32>}> : () -> f",
        LOWEST,
        "o = constant <{value = dense<0> : tensor<i32>}> : () -> i",
        "n = iota <{iota_dimension = 1 : i64}> : () -> i4x6",
        f"a = reduce x h <{{dimensions = array<i64: 0>}}> {{{{{MOST}}}}} : f4x6 f -> f6",
        f"b = reduce x n m o <{{dimensions = array<i64: 1>}}> {{{{{FIRST_MOST}}}}}"
        " : f4x6 i4x6 f i -> f4 i4",
        returns="a:f6 b#0:f4 b#1:i4",
    )
    array = np.round(x(4, 6))
    check(text, {"x": array}, np.maximum(array.max(0), 0.5), array.max(1), array.argmax(1))


@pytest.mark.parametrize("start", [-3, 1, 9])
def test_windows_at_positions_are_moved_into_the_tensor(start):
    text = module(
        "x:f4x6 s:i u:f4x2",
        "o = constant <{value = dense<0> : tensor<i32>}> : () -> i",
        "a = dynamic_slice x o s <{slice_sizes = array<i64: 4, 3>}> : f4x6 i i -> f4x3",
        "b = dynamic_update_slice x u o s : f4x6 f4x2 i i -> f4x6",
        returns="a:f4x3 b:f4x6",
    )
    array, update = x(4, 6), x(4, 2, seed=1)
    first, second = np.clip(start, 0, 3), np.clip(start, 0, 4)
    written = array.copy()
    written[:, second : second + 2] = update
    inputs = {"x": array, "s": np.int32(start), "u": update}
    check(text, inputs, array[:, first : first + 3], written)


def test_gathers_of_windows_with_batches():
    dims = (
        "offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], "
        "start_indices_batching_dims = [1], start_index_map = [1, 2], index_vector_dim = 0"
    )
    text = module(
        "x:f3x5x6 i:i2x3x4",
        f"r = gather x i <{{dimension_numbers = #stablehlo.gather<{dims}>, slice_sizes = "
        "array<i64: 1, 1, 2>}> : f3x5x6 i2x3x4 -> f3x4x2",
        returns="r:f3x4x2",
    )
    array = x(3, 5, 6)
    places = np.random.default_rng(1).integers(-2, 8, (2, 3, 4)).astype(np.int32)
    want = np.zeros((3, 4, 2), np.float32)
    for b, n in np.ndindex(3, 4):
        row, column = np.clip(places[0, b, n], 0, 4), np.clip(places[1, b, n], 0, 4)
        want[b, n] = array[b, row, column : column + 2]
    check(text, {"x": array, "i": places}, want)


@pytest.mark.parametrize(("body", "name"), [(SECOND, "set"), (ADD, "add")])
def test_scatters_leave_out_updates_beyond_the_tensor(body, name):
    dims = (
        "update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
    )
    text = module(
        "x:f4x3 i:i5x1 u:f5x3",
        f"r = scatter x i u <{{scatter_dimension_numbers = #stablehlo.scatter<{dims}>}}>"
        f" {{{{{body}}}}} : f4x3 i5x1 f5x3 -> f4x3",
        returns="r:f4x3",
    )
    array, updates = x(4, 3), x(5, 3, seed=1)
    want = array.copy()
    for place, update in zip((2, -1, 0, 4, 3), updates, strict=True):
        if 0 <= place < 4:
            want[place] = update if name == "set" else want[place] + update
    places = np.array([[2], [-1], [0], [4], [3]], np.int32)
    check(text, {"x": array, "i": places, "u": updates}, want)


def test_sorts_by_one_of_several_tensors():
    text = module(
        "x:f3x5 v:i3x5",
        "s = sort v x <{dimension = 1 : i64, is_stable = true}> {{"
        + region("i:i j:i p:f q:f", f"r = compare p q {GREATER} : f f -> b", returns="r:b")
        + "}} : i3x5 f3x5 -> i3x5 f3x5",
        "t = composite x <{composite_attributes = {k = 2 : i64}, decomposition = @nowhere, name = "
        '"chlo.top_k", version = 1 : i32}> : f3x5 -> f3x2 i3x2',
        returns="s#0:i3x5 s#1:f3x5 t#1:i3x2",
    )
    array, values = x(3, 5), np.arange(15, dtype=np.int32).reshape(3, 5)
    order = np.argsort(-array, 1)
    check(
        text,
        {"x": array, "v": values},
        np.take_along_axis(values, order, 1),
        np.take_along_axis(array, order, 1),
        order[:, :2],
    )


def test_pads_between_elements_and_reversals():
    text = module(
        "x:f3x4",
        "v = constant <{value = dense<1.5> : tensor<f32>}> : () -> f",
        "p = pad x v <{edge_padding_low = array<i64: 1, -1>, edge_padding_high = array<i64: 0, 2>,"
        " interior_padding = array<i64: 2, 0>}> : f3x4 f -> f8x5",
        "r = reverse p <{dimensions = array<i64: 1>}> : f8x5 -> f8x5",
        returns="r:f8x5",
    )
    array = x(3, 4)
    want = np.full((8, 5), 1.5, np.float32)
    want[1::3, :3] = array[:, 1:]
    check(text, {"x": array}, want[:, ::-1])


@pytest.mark.parametrize("choice", [-1, 0, 1, 5])
def test_loops_and_branches_use_the_values_around_them(choice):
    again = region("n:i a:f3", f"c = compare n k {LESS} : i i -> b", returns="c:b")
    step = region(
        "n:i a:f3",
        "m = add n one : i i -> i",
        "b = func.call a x <{callee = @grow}> : f3 f3 -> f3",
        returns="m:i b:f3",
    )
    branches = " || ".join(
        region("", f"r{n} = {op} w#1 x : f3 f3 -> f3", returns=f"r{n}:f3")
        for n, op in enumerate(("add", "subtract", "multiply"))
    )
    text = module(
        "x:f3 k:i c:i",
        "o = constant <{value = dense<0> : tensor<i32>}> : () -> i",
        "one = constant <{value = dense<1> : tensor<i32>}> : () -> i",
        f"w = while o x {{{{{again} || {step}}}}} : i f3 -> i f3",
        f"y = case c {{{{{branches}}}}} : i -> f3",
        returns="y:f3 w#0:i",
        functions=[
            function("grow", "a:f3 b:f3", ["t = add a b : f3 f3 -> f3"], "t:f3"),
        ],
    )
    array = x(3)
    grown = array * 5
    branch = choice if choice in (0, 1) else 2
    want = (grown + array, grown - array, grown * array)[branch]
    inputs = {"x": array, "k": np.int32(4), "c": np.int32(choice)}
    check(text, inputs, want, np.int32(4))


def test_tiny_arguments_keep_their_digits():
    text = module(
        "x:f6",
        "a = log_plus_one x : f6 -> f6",
        "b = exponential_minus_one x : f6 -> f6",
        returns="a:f6 b:f6",
    )
    array = np.array([1e-7, -3e-5, 0.0, 0.4, 50.0, -0.7], np.float32)
    wide = array.astype(np.float64)
    check(text, {"x": array}, np.log1p(wide), np.expm1(wide))


def test_open_sizes_run_through_arithmetic_on_sizes():
    text = module(
        "x:f?x3",
        "n = get_dimension_size x <{dimension = 0 : i64}> : f?x3 -> i",
        "t = constant <{value = dense<3> : tensor<1xi32>}> : () -> i1".replace("i1", "i1"),
        "m = reshape n : i -> i1",
        "f = multiply m t : i1 i1 -> i1",
        "y = dynamic_reshape x f : f?x3 i1 -> f?",
        "i = dynamic_iota f <{iota_dimension = 0 : i64}> : i1 -> f?",
        "z = add y i : f? f? -> f?",
        'c = custom_call z <{call_target_name = "Sharding"}> : f? -> f?',
        returns="c:f?",
    )
    artifact = farrier.compile(text.encode(), verify=False)
    for rows in (1, 4, 7):
        array = x(rows, 3)
        (result,) = artifact.run({"x": array}).values()
        np.testing.assert_allclose(result, array.ravel() + np.arange(3 * rows), rtol=1e-6)
