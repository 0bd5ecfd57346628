"""`python -m bench.large`: measure the memory needed to compile a model of several gigabytes.

It writes a model of matrix products with random weights as external data, compiles it with `farrier
compile`, including verification, and samples the memory of all processes during the compilation:

    PSS   resident memory, a page that several processes share divided among them
    peak  the most at once; `ratio` is its share of the weights' bytes

Pages of files that are no longer mapped belong to the system's page cache, and do not count.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

_SAMPLE_S = 0.05
_PIECE = 1 << 22  # The elements that are drawn at once.


def write_model(
    path: Path, nbytes: int, *, wide: int = 16384, narrow: int = 4096, rows: int = 4
) -> int:
    """Write a model of matrix products whose weights, in a second file, take at least `nbytes`;
    return their actual size."""
    layers = max(1, -(-nbytes // (4 * wide * narrow)))
    rng = np.random.default_rng(0)
    data = path.with_name(f"{path.name}.data")
    nodes, tensors, offset = [], [], 0
    value = "x"
    with data.open("wb") as file:
        for number in range(layers):
            shape = (narrow, wide) if number % 2 == 0 else (wide, narrow)
            tensors.append(_external(f"w{number}", shape, data.name, offset))
            for start in range(0, narrow * wide, _PIECE):
                count = min(_PIECE, narrow * wide - start)
                piece = rng.standard_normal(count, np.float32)
                piece *= np.float32(shape[0] ** -0.5)
                file.write(piece.data)
            offset += 4 * narrow * wide
            nodes.append(helper.make_node("MatMul", [value, f"w{number}"], [f"m{number}"]))
            value = f"m{number}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, narrow])]
    outputs = [
        helper.make_tensor_value_info(
            value, TensorProto.FLOAT, [rows, wide if layers % 2 else narrow]
        )
    ]
    graph = helper.make_graph(nodes, "large", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return offset


def _external(name: str, shape: tuple[int, int], location: str, offset: int) -> onnx.TensorProto:
    length = 4 * shape[0] * shape[1]
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Return the maximum total PSS of a process and its descendants, sampled until the process
    ends."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_pss, [process.pid, *_children(process.pid)])))
        time.sleep(_SAMPLE_S)
    return peak


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # The process has ended.
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _children(pid: int) -> Iterator[int]:
    try:
        tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return
    for child in map(int, " ".join(tasks).split()):
        yield child
        yield from _children(child)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bytes", type=float, default=2.5e9, help="of weights [2.5e9]")
    parser.add_argument("--most", type=float, default=1.3, help="the ratio that is allowed")
    parser.add_argument("options", nargs="*", help="of farrier compile, behind --")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="farrier-large-") as folder:
        model = Path(folder) / "large.onnx"
        weights = write_model(model, int(args.bytes))
        begin = time.monotonic()
        main_of = "from farrier.cli.main import main; main()"
        command = [sys.executable, "-c", main_of, "compile", str(model), *args.options]
        process = subprocess.Popen(command)
        peak = peak_bytes(process)
        seconds = time.monotonic() - begin
        ratio = peak / weights
        print(f"weights {weights / 1e9:.2f} GB, peak PSS {peak / 1e9:.2f} GB, ratio {ratio:.2f}")
        print(f"{seconds:.1f} s")
        sys.exit(process.returncode or int(ratio > args.most))


if __name__ == "__main__":
    main()
