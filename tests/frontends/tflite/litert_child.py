"""Runs models by LiteRT's reference kernels: a program for an environment that has ai-edge-litert.

    python litert_child.py FOLDER    every FOLDER/*.tflite with its *.inputs.npz → *.outputs.npz

An archive has the arrays "<call>.<position>"; calls follow one another on one interpreter.
"""

import sys
from pathlib import Path

import numpy as np


def outputs_of(path, calls):
    """Return the outputs of each call by the reference kernels, or by the built-in ones for a model
    of which those lack an operator."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolvers = OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    for resolver in resolvers:
        try:
            return run(Interpreter(str(path), experimental_op_resolver_type=resolver), calls)
        except (RuntimeError, ValueError):
            if resolver is resolvers[-1]:
                raise
    raise AssertionError


def run(interpreter, calls):
    """Return the outputs of calls that follow one another."""
    details = interpreter.get_input_details()
    for detail, array in zip(details, calls[0], strict=True):
        if list(detail["shape"]) != list(array.shape):
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    results = []
    for inputs in calls:
        for detail, array in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        outputs = interpreter.get_output_details()
        results.append([interpreter.get_tensor(detail["index"]) for detail in outputs])
    return results


def calls_in(archive):
    """Return the arrays of an archive, call by call."""
    calls = {}
    for key in archive.files:
        call, position = map(int, key.split("."))
        calls.setdefault(call, {})[position] = archive[key]
    return [[call[place] for place in sorted(call)] for _, call in sorted(calls.items())]


def main(folder):
    for path in sorted(Path(folder).glob("*.tflite")):
        with np.load(path.with_suffix(".inputs.npz")) as archive:
            calls = calls_in(archive)
        try:
            results = outputs_of(path, calls)
        except (RuntimeError, ValueError) as error:
            path.with_suffix(".error.txt").write_text(str(error))
            continue
        arrays = {
            f"{call}.{place}": array
            for call, outputs in enumerate(results)
            for place, array in enumerate(outputs)
        }
        np.savez(path.with_suffix(".outputs.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
