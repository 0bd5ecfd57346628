"""Functions of JAX and models of flax, exported by JAX with their results.

    python -m tests.frontends.stablehlo.functions FOLDER

Runs where jax and flax are installed; `tests.frontends.stablehlo.compared` reads the folder where
they are not.
"""

import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from farrier.conversion.jax import text_of

NHWC = ("NHWC", "HWIO", "NHWC")


def kernel(*shape):
    return jnp.arange(float(np.prod(shape))).reshape(shape) / 9


def row_places(x):
    return jnp.int32(x[:, 0] * 4)


def convolved(x, shape, channels=1, **options):
    image = jnp.tile(x.reshape(1, 4, 6, 1), (1, 1, 1, channels))
    return lax.conv_general_dilated(image, kernel(*shape), dimension_numbers=NHWC, **options)


def scanned(x):
    return lax.scan(lambda c, v: (jnp.tanh(c * 0.5 + v), c), jnp.zeros(6), x)


FUNCTIONS = {
    "add_rows": lambda x: x.at[jnp.array([0, 1])].add(1.0),
    "any_and_more": lambda x: (jnp.any(x > 1, 0), x.prod(1), x.max(), x.min(1), jnp.all(x < 2)),
    "argmax": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)),
    "argsort": lambda x: (jnp.sort(x, 1), jnp.argsort(x)),
    "atan2": lambda x: jnp.arctan2(x, x[::-1]),
    "attention": lambda x: jax.nn.dot_product_attention(*[x.reshape(1, 4, 2, 3)] * 3),
    "bfloat16": lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32),
    "bits": lambda x: ((x * 10).astype(jnp.int32) & 3) | 4,
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda v: v + 1, lambda v: v - 1, x),
    "conv": lambda x: convolved(x, (3, 3, 1, 2), window_strides=(1, 1), padding="SAME"),
    "conv_transpose": lambda x: lax.conv_transpose(
        x.reshape(1, 4, 6, 1), kernel(3, 3, 1, 2), (2, 2), "SAME", dimension_numbers=NHWC
    ),
    "cumulative": lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 1), lax.cumsum(x, 1, reverse=True)),
    "depthwise": lambda x: convolved(
        x, (3, 3, 1, 3), 3, window_strides=(2, 2), padding="VALID", feature_group_count=3
    ),
    "dilated": lambda x: lax.conv_general_dilated(
        x.reshape(1, 4, 6),
        kernel(2, 4, 3),
        (1,),
        [(1, 2)],
        rhs_dilation=(2,),
        dimension_numbers=("NCH", "HIO", "NCH"),
    ),
    "einsum": lambda x: jnp.einsum("ij,klj->ikl", x, x.reshape(2, 2, 6)),
    "erf": lambda x: (jax.scipy.special.erf(x), jax.nn.gelu(x, approximate=False)),
    "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, v: v * i + 1, x),
    "gradient": jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x.T))),
    "integers": lambda x: (x * 10).astype(jnp.int32) // 3 + (x * 10).astype(jnp.int32) % 4,
    "max_at": lambda x: x.at[:, jnp.array([1, 3])].max(0.2),
    "one_hot": lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 6),
    "pad": lambda x: lax.pad(x, 1.5, ((1, 2, 1), (-1, 0, 2))),
    "random": lambda x: x + jax.random.normal(jax.random.PRNGKey(0), (6,)),
    "resize": lambda x: (
        jax.image.resize(x, (8, 12), "bilinear"),
        jax.image.resize(x, (7, 9), "cubic"),
    ),
    "scan": scanned,
    "scatter_outside": lambda x: x.at[row_places(x)].set(9.0),
    "segment_sum": lambda x: jax.ops.segment_sum(x, jnp.array([0, 2, 1, 0]), 3),
    "slice_at": lambda x: lax.dynamic_slice(x, (jnp.int32(x[0, 0] * 3), 2), (2, 3)),
    "switch": lambda x: lax.switch(
        jnp.int32(x[0, 0]), [lambda v: v + 1, lambda v: v - 1, lambda v: v * 2], x
    ),
    "take": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1)[:, :2], 1),
    "tiny": lambda x: (jnp.expm1(x * 1e-4), jnp.log1p(jnp.abs(x) * 1e-5), jnp.cbrt(x)),
    "top_k": lambda x: lax.top_k(x, 2),
    "triangle": lambda x: (jnp.tril(x), jax.nn.standardize(x), x.var(1)),
    "vmap_slices": lambda x: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (2,)))(
        x, jnp.arange(4)
    ),
    "while_loop": lambda x: lax.while_loop(
        lambda v: v.sum() < 100, lambda v: v * 2 + 1, jnp.abs(x)
    ),
    "windows": lambda x: (
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "SAME"),
        lax.reduce_window(x, jnp.inf, lax.min, (2, 3), (1, 2), "SAME"),
    ),
}


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        for stride, channels in ((1, 8), (2, 16)):
            x = nn.Conv(channels, (3, 3), strides=stride)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(nn.avg_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2))
        return nn.softmax(nn.Dense(10)(x.reshape((x.shape[0], -1))))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(4)(h, h)
        return x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))


class Language(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(50, 32)(tokens) + nn.Embed(64, 32)(jnp.arange(tokens.shape[1]))[None]
        return nn.Dense(50)(Block()(Block()(x)))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.RNN(nn.LSTMCell(12))(x)


class UNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        above = nn.relu(nn.GroupNorm(2)(nn.Conv(8, (3, 3))(x)))
        below = nn.max_pool(above, (2, 2), (2, 2))
        below = nn.swish(nn.Conv(8, (3, 3), feature_group_count=8)(below))
        below = nn.ConvTranspose(8, (2, 2), strides=(2, 2))(below)
        return nn.Conv(3, (1, 1))(jnp.concatenate([above, below], -1))


MODELS = {  # A module, an input's shape, and its names of open dims.
    "cnn": (Cnn(), (2, 16, 16, 3), "b, 16, 16, 3"),
    "language": (Language(), (2, 7), "b, t"),
    "recurrent": (Recurrent(), (2, 5, 6), "b, 5, 6"),
    "unet": (UNet(), (1, 16, 16, 3), "b, 16, 16, 3"),
}


def write(path, function, inputs, shapes):
    """Write a module, inputs, and the results of each."""
    path.write_text(text_of(export.export(jax.jit(function))(shapes)))
    arrays = {}
    for number, each in enumerate(inputs):
        arrays[f"{number} in 0"] = each
        for n, result in enumerate(jax.tree.leaves(jax.jit(function)(each))):
            arrays[f"{number} out {n}"] = np.asarray(result)
    np.savez(path.with_suffix(".npz"), **arrays)


def main(folder):
    draw = np.random.default_rng(1)
    for name, function in FUNCTIONS.items():
        x = draw.standard_normal((4, 6)).astype(np.float32)
        write(folder / f"{name}.mlir", function, [x], x)
    for name, (model, shape, dims) in MODELS.items():
        sizes = [shape, (3, *shape[1:]), (5, *shape[1:])]
        inputs = [draw.standard_normal(size).astype(np.float32) for size in sizes]
        if name == "language":
            inputs = [np.abs(each * 10).astype(np.int32) for each in inputs]
        params = model.init(jax.random.PRNGKey(0), inputs[0])
        (spec,) = export.symbolic_args_specs((inputs[0],), (dims,))
        write(folder / f"{name}.mlir", lambda x, m=model, p=params: m.apply(p, x), inputs, spec)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
