"""A writer of `.pt2` files, for tests: a program in a few lines, without torch.

    program = Program({"x": ("f32", ["s0", 8])}, {"w": weight})
    program.call("linear", "aten.linear.default", "x", "w", line="net.py:7")
    save(path, program, ["linear"])

A string argument names a value; `Text` wraps a string that is meant as itself.
"""

import io
import json
import zipfile

import numpy as np

DTYPES = {"f32": 7, "i64": 5, "bool": 12, "f16": 6}
_TORCH = ("aten.", "higher_order.")
_NUMPY = {"float32": 7, "int64": 5, "bool": 12, "float16": 6}


class Text(str):
    """A string argument, not the name of a value."""


def _symbol(name):
    return f"Symbol('{name}', positive=True, integer=True)"


def _size(size):
    if isinstance(size, int):
        return {"as_int": size}
    return {"as_expr": {"expr_str": _symbol(size) if size.isidentifier() else size, "hint": None}}


def meta(dtype, shape, strides=None):
    """Return the JSON of a tensor's type."""
    if strides is None:
        strides = [1] * len(shape)
        numbers = [size if isinstance(size, int) else 1 for size in shape]
        for axis in reversed(range(len(shape) - 1)):
            strides[axis] = strides[axis + 1] * numbers[axis + 1]
    return {
        "dtype": dtype if isinstance(dtype, int) else DTYPES[dtype],
        "sizes": [_size(size) for size in shape],
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "layout": 7,
    }


def argument(value):
    """Return the JSON of an argument."""
    match value:
        case None:
            return {"as_none": True}
        case Text():
            return {"as_string": str(value)}
        case str():
            return {"as_tensor": {"name": value}}
        case bool():
            return {"as_bool": value}
        case int():
            return {"as_int": value}
        case float():
            return {"as_float": value}
        case [str(), *_]:
            return {"as_tensors": [{"name": name} for name in value]}
        case list():
            return {"as_ints": value}
    return value  # JSON that the caller wrote.


class Program:
    """A program under construction."""

    def __init__(self, inputs, weights=None, ranges=None):
        self.weights = dict(weights or {})
        self.values = {name: meta(*kind) for name, kind in inputs.items()}
        self.users = list(inputs)
        for name, array in self.weights.items():
            self.values[name] = meta(_NUMPY[array.dtype.name], list(array.shape))
        self.ranges = ranges or {}
        self.nodes = []
        self.mutations = {}

    def call(self, name, target, *arguments, dtype="f32", line="", more=(), **keywords):
        """Add a call of one result, or of `more` after it."""
        inputs = [{"name": "", "arg": argument(value), "kind": 1} for value in arguments]
        inputs += [{"name": k, "arg": argument(v), "kind": 2} for k, v in keywords.items()]
        file, _, number = line.partition(":")
        trace = f'File "/home/ada/{file}", line {number}, in forward\n    y = f(x)' if line else ""
        self.nodes.append(
            {
                "target": f"torch.ops.{target}" if target.startswith(_TORCH) else target,
                "inputs": inputs,
                "outputs": [{"as_tensor": {"name": result}} for result in (name, *more)],
                "metadata": {"stack_trace": trace},
                "name": name,
            }
        )
        self.values.update({result: meta(dtype, []) for result in (name, *more)})
        return name

    def nested(self, outputs):
        """Return the graph as an argument of a call of another program."""
        return {"as_graph": {"name": "nested", "graph": self.graph(outputs)}}

    def graph(self, outputs):
        """Return the JSON of the graph."""
        return {
            "inputs": [argument(name) for name in (*self.weights, *self.users)],
            "outputs": [argument(name) for name in outputs],
            "nodes": self.nodes,
            "tensor_values": self.values,
        }

    def document(self, outputs):
        """Return the JSON of the program."""
        specs = [
            {"buffer": {"arg": {"name": w}, "buffer_name": w, "persistent": True}}
            for w in self.weights
        ]
        specs += [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in self.users]
        results = [
            {"buffer_mutation": {"arg": {"name": value}, "buffer_name": buffer}}
            for buffer, value in self.mutations.items()
        ]
        results += [{"user_output": {"arg": {"as_tensor": {"name": name}}}} for name in outputs]
        return {
            "graph_module": {
                "graph": self.graph(outputs),
                "signature": {"input_specs": specs, "output_specs": results},
                "module_call_graph": [],
            },
            "range_constraints": {
                name: {"min_val": low, "max_val": high} for name, (low, high) in self.ranges.items()
            },
            "schema_version": {"major": 8, "minor": 20},
            "torch_version": "2.13.0",
        }


def archive(members, compression=zipfile.ZIP_STORED):
    """Return the bytes of an archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as written:
        for name, data in members.items():
            written.writestr(f"m/{name}", data)
    return file.getvalue()


def members(program, outputs):
    """Return the members of a program's archive, by name."""
    config = {
        name: {
            "path_name": f"weight_{place}",
            "use_pickle": False,
            "tensor_meta": meta(_NUMPY[array.dtype.name], list(array.shape)),
        }
        for place, (name, array) in enumerate(program.weights.items())
    }
    raw = [np.ascontiguousarray(array).tobytes() for array in program.weights.values()]
    return {
        "archive_format": "pt2",
        "byteorder": "little",
        "models/model.json": json.dumps(program.document(outputs)),
        "data/weights/model_weights_config.json": json.dumps({"config": config}),
        **{f"data/weights/weight_{place}": data for place, data in enumerate(raw)},
    }


def saved(program, outputs):
    """Return the bytes of a program's `.pt2` file."""
    return archive(members(program, outputs))
