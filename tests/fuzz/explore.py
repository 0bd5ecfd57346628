"""Compile thousands of random models, static and with open dims, and compare their results.

    python tests/fuzz/explore.py --count 5000 --seed 0

Every model is compiled with no option in a child of its own, and run: as it is, and with all dims
of its inputs open at several sizes. ONNX Runtime is asked first; where it has no result, or another
one, the reference of the `onnx` package is. The last line says how many models ran and how they
fared; the exit status is 1 where a value was wrong, an error internal or a process died.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from outside import Arrays, Died, in_child, onnxruntime_outputs
from random_models import drawn, random_model

MODES = ("static", "open")
OTHER_SIZES = (0, 1, 2, 3, 5, 8, 16, 17, 33)
_RUNS = 4  # The runs of a model with open dims.
# Wall-clock time: a model takes seconds, and on a busy machine a hundred times that.
_SECONDS = 600.0
_EMPTY = 0.08  # The share of models with empty axes.


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of a model and the reason: right, refused, unjudged, or the kind of failure."""

    kind: str
    text: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind in ("wrong", "internal", "died", "slow")


def judged(model: bytes, mode: str, rng: random.Random) -> Verdict:
    """Compile and run a model of numbers, with its dims open in mode open."""
    import farrier
    from farrier.errors import CompilerError, FarrierError
    from farrier.progress import Event, Warned

    feeds = [_feeds(model, {}, rng)]
    compiled = model
    if mode == "open":
        compiled, sizes = opened(model, rng)
        feeds = [_feeds(compiled, at, rng) for at in (sizes, *_other_sizes(sizes, rng))]
    expected = onnxruntime_outputs(compiled, feeds)
    events: list[Event] = []
    try:
        artifact = farrier.compile(compiled, verify=False, cores=1, listener=events.append)
    except CompilerError as error:
        return Verdict("internal", f"{type(error).__name__}: {error}")
    except FarrierError as error:
        return Verdict("refused", f"{type(error).__name__}: {error}")
    messages = [event.message for event in events if isinstance(event, Warned)]
    passed_over = [message for message in messages if "is scheduled by the rule" in message]
    if passed_over:
        return Verdict("internal", passed_over[0])
    declined = 0
    for at, (feed, outputs) in enumerate(zip(feeds, expected, strict=True)):
        try:
            results = artifact.run(feed)
        except FarrierError as error:
            if mode == "static":
                return Verdict("wrong", f"at run time: {error}")
            declined += outputs is not None
            continue
        if outputs is None and at > 0:
            continue  # No engine takes these sizes.
        text = _difference(compiled, feed, results, outputs)
        if text and at > 0 and onnxruntime_outputs(closed(compiled, feed), [feed]) == [None]:
            continue  # ONNX Runtime refuses the model of these sizes, and fills no result here.
        if text and _is_allowed_nan(compiled, feed, results, outputs):
            continue
        if text:
            return Verdict("wrong", f"{_shapes(feed)}: {text}")
    return Verdict("right" if declined < len(feeds) else "declined")


def _shapes(feed: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}{list(array.shape)}" for name, array in feed.items())


def _difference(
    model: bytes, feed: Mapping[str, Any], actual: Arrays, expected: Arrays | None
) -> str:
    """Return the differences from ONNX Runtime and the reference, or "" if one of them agrees."""
    texts = []
    for judge in (lambda: expected, lambda: _reference(model, feed)):
        outputs = judge()
        if outputs is None:
            continue
        text = next(filter(None, (_unlike(k, actual[k], v) for k, v in outputs.items())), "")
        if not text:
            return ""
        texts.append(text)
    return " | ".join(texts)


def _is_allowed_nan(
    model: bytes, feed: Mapping[str, Any], results: Arrays, expected: Arrays | None
) -> bool:
    """Return whether results differ only by NaN that an algorithm spreads, as the deviations in
    docs/reference/operators.md allow, and not where `max_layer_error` is 0."""
    import farrier

    if expected is None:
        return False
    for name, wanted in expected.items():
        result = results[name]
        if result.dtype.kind != "f" or result.shape != wanted.shape:
            return False
        if _unlike(name, np.where(np.isnan(result), wanted, result), wanted):
            return False
    plain = farrier.compile(model, verify=False, cores=1, max_layer_error=0)
    return not _difference(model, feed, plain.run(feed), expected)


def _reference(model: bytes, feed: Mapping[str, Any]) -> Arrays | None:
    try:
        return in_child(_by_reference, model, feed)
    except (Died, RuntimeError):
        return None


# Operators that onnx's reference computes otherwise than the specification and ONNX Runtime do: LRN
# leaves all channels but the first as they are, LpNormalization sums elements, not magnitudes,
# GlobalMaxPool returns another rank for inputs that are not images, and LpPool scales its last
# windows under `ceil_mode`. MaxPool takes each pair of neighbours in `pads` as those of one axis.
_UNTRUSTED = frozenset(("LRN", "LpNormalization", "GlobalMaxPool", "LpPool"))


def _has_unequal_pads(node: onnx.NodeProto) -> bool:
    """Return whether a node is a MaxPool whose pads are not all equal."""
    pads = next((set(a.ints) for a in node.attribute if a.name == "pads"), set())
    return node.op_type == "MaxPool" and len(pads) > 1


def _by_reference(model: bytes, feed: Mapping[str, Any]) -> Arrays | None:
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_from_string(model)
    if any(node.op_type in _UNTRUSTED or _has_unequal_pads(node) for node in proto.graph.node):
        return None
    names = [output.name for output in proto.graph.output]
    outputs = ReferenceEvaluator(proto).run(names, dict(feed))
    return dict(zip(names, map(np.asarray, outputs), strict=True))


# What an output may be off by, as share of its range.
_TOLERANCES = {"float16": 2e-2, "float32": 2e-4, "float64": 2e-4}


def _unlike(name: str, actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    """Return the difference of an output from the expected one as text; empty if they agree."""
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return (
            f"{name} is {actual.dtype}{list(actual.shape)}, {expected.dtype}{list(expected.shape)}"
        )
    if actual.dtype.kind != "f":
        wrong = actual != expected
    else:
        finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
        allowed = _TOLERANCES[actual.dtype.name] * finite.max(initial=1e-6)
        with np.errstate(all="ignore"):
            error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
            same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
            wrong = ~(same | (error <= allowed))
    if not wrong.any():
        return ""
    left, right = actual[wrong].ravel()[:4], expected[wrong].ravel()[:4]
    return f"{int(wrong.sum())} of {wrong.size} of {name}: {left} for {right}"


# Open dims ----------------------------------------------------------------------------------------


def opened(model: bytes, rng: random.Random) -> tuple[bytes, dict[str, int]]:
    """The model with all dims of its inputs open, and the size that each had. Equal extents have
    one name, or each its own."""
    proto = onnx.load_from_string(model)
    is_shared = rng.random() < 0.5
    sizes: dict[str, int] = {}
    for info in proto.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            extent = dim.dim_value
            name = f"n{extent}" if is_shared and extent != 1 else f"{info.name}_{axis}"
            dim.dim_param = name
            sizes[name] = extent
    for info in proto.graph.output:
        info.type.tensor_type.ClearField("shape")
    return proto.SerializeToString(), sizes


def closed(model: bytes, feed: Mapping[str, Any]) -> bytes:
    """Return the model with the dims of its inputs fixed to those of the arrays of `feed`."""
    proto = onnx.load_from_string(model)
    for info in proto.graph.input:
        dims = info.type.tensor_type.shape.dim
        for dim, extent in zip(dims, feed[info.name].shape, strict=True):
            dim.dim_value = extent
    return bytes(proto.SerializeToString())


def _other_sizes(sizes: Mapping[str, int], rng: random.Random) -> Iterator[dict[str, int]]:
    """Sizes with one changed, and then with several: constants hold many of them fixed."""
    for run in range(_RUNS - 1):
        changed = rng.sample(sorted(sizes), min(len(sizes), 1 + run // 2))
        yield {**sizes, **{name: rng.choice(OTHER_SIZES) for name in changed}}


def _feeds(model: bytes, sizes: Mapping[str, int], rng: random.Random) -> dict[str, Any]:
    arrays = np.random.default_rng(rng.getrandbits(32))
    feeds = {}
    for info in onnx.load_from_string(model).graph.input:
        kind = info.type.tensor_type
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        feeds[info.name] = drawn(arrays, shape, kind.elem_type)
    return feeds


# Exploring ----------------------------------------------------------------------------------------


def verdict_of(seed: int, mode: str, most: int = 8, empty: float = _EMPTY) -> Verdict:
    """The verdict on one random model, reached in a child."""
    return _outside(random_model(random.Random(seed), most, empty), mode, seed)


def _outside(model: bytes, mode: str, seed: int) -> Verdict:
    try:
        return in_child(judged, model, mode, random.Random(seed), seconds=_SECONDS)
    except Died as error:
        return Verdict("died" if "crashed" in str(error) else "slow", str(error))
    except RuntimeError as error:  # This error is not a FarrierError.
        return Verdict("internal", str(error))


def smallest(seed: int, mode: str, kind: str, most: int = 8) -> tuple[bytes, Verdict] | None:
    """The model that ends at the first value of which a model still fares the same."""
    proto = onnx.load_from_string(random_model(random.Random(seed), most, _EMPTY))
    for node in proto.graph.node:
        for name in filter(None, node.output):
            model = _ending_at(proto, name)
            verdict = _outside(model, mode, seed)
            if verdict.kind == kind:
                return model, verdict
    return None


def _ending_at(proto: onnx.ModelProto, output: str) -> bytes:
    """Return the model of one output, with only the nodes that compute it."""
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    wanted, nodes = {output}, []
    for node in reversed(proto.graph.node):
        if wanted.intersection(node.output):
            nodes.append(node)
            wanted.update(node.input)
    for field, kept in (
        ("node", nodes[::-1]),
        ("input", [info for info in proto.graph.input if info.name in wanted]),
        ("initializer", [t for t in proto.graph.initializer if t.name in wanted]),
        ("output", [onnx.ValueInfoProto(name=output)]),
    ):
        cut.graph.ClearField(field)
        getattr(cut.graph, field).extend(kept)
    inferred = onnx.shape_inference.infer_shapes(cut)
    return bytes(inferred.SerializeToString())


def explore(
    seeds: Sequence[int], jobs: int, tell: Callable[[str], None], keep: Path | None = None
) -> collections.Counter[tuple[str, str]]:
    """Return the number of models by mode and judgement; failures are passed to `tell`."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    work = [(seed, mode) for seed in seeds for mode in MODES]
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = pool.map(lambda pair: verdict_of(*pair), work)
        for (seed, mode), verdict in zip(work, verdicts, strict=True):
            counts[mode, verdict.kind] += 1
            if verdict.is_finding or (verdict.kind == "refused" and mode == "static"):
                tell(f"seed {seed} {mode}: {verdict.kind}: {verdict.text[:400]}")
                cut = smallest(seed, mode, verdict.kind)
                if cut is not None:
                    proto = onnx.load_from_string(cut[0])
                    tell(onnx.printer.to_text(proto.graph)[:3000])
                    tell(f"  {cut[1].text[:400]}")
                    if keep is not None:
                        (keep / f"{seed}-{mode}.onnx").write_bytes(cut[0])
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=5000, help="random graphs")
    parser.add_argument("--seed", type=int, default=None, help="of the first; drawn by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="a folder for the smallest models of findings")
    options = parser.parse_args(arguments)
    import onnxruntime  # noqa: F401

    import farrier.pipeline  # noqa: F401  once, for all children

    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    seeds = range(first, first + options.count)
    counts = explore(seeds, options.jobs, lambda text: print(text, flush=True), options.keep)
    took = time.monotonic() - start
    fared = ", ".join(f"{mode} {kind} {n}" for (mode, kind), n in sorted(counts.items()))
    print(
        f"{options.count} graphs from seed {first}, each static and open, in {took:.0f} s: {fared}"
    )
    return int(any(Verdict(kind).is_finding for _, kind in counts))


if __name__ == "__main__":
    sys.exit(main())
