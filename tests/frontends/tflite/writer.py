"""A writer of small TFLite models, which shares no code with the reader but for the options' table.

w = Writer()
x = w.tensor("x", (1, 4, 4, 3))
y = w.tensor("y", (1, 4, 4, 8))
w.op("CONV_2D", [x, w.constant(weights), w.constant(bias)], [y], stride_w=1, stride_h=1)
data = w.model([x], [y])
"""

import dataclasses
import struct

import numpy as np

from farrier.frontends.tflite.builtin import BUILTIN
from farrier.frontends.tflite.options import _OPTIONS
from farrier.frontends.tflite.schema import TYPE_NAMES

TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "uint8": "UINT8",
    "int64": "INT64", "bool": "BOOL", "int16": "INT16", "int8": "INT8", "float64": "FLOAT64",
}  # fmt: skip
CUSTOM = BUILTIN.index("CUSTOM")
VERSIONS = {"BROADCAST_TO": 2}  # Earlier versions are not builtin operators.


@dataclasses.dataclass
class Scalar:
    """A scalar field; `kind` is a letter of `struct`."""

    kind: str
    value: object


@dataclasses.dataclass
class Vector:
    """A vector of scalars."""

    kind: str
    values: list


def text(value):
    """Return a string, which is a vector of bytes that ends with a zero."""
    return Vector("B", [*value.encode(), 0])


class Flatbuffer:
    """Tables, vectors and scalars → bytes. A table is a dict by the numbers of its fields."""

    def __init__(self):
        self.data = bytearray()

    def write(self, root):
        """Return the file whose outermost table is `root`."""
        self.data += struct.pack("<I4s", 0, b"TFL3")
        self._link(0, root)
        return bytes(self.data)

    def _align(self, size):
        self.data += bytes(-len(self.data) % size)

    def _link(self, at, part):
        """Write a part behind what there is, and the offset to it at `at`."""
        self._align(8)
        if isinstance(part, dict):
            start = self._table(part)
        elif isinstance(part, Vector):
            start = self._vector(part)
        else:
            start = self._tables(part)
        struct.pack_into("<I", self.data, at, start - at)

    def _table(self, fields):
        count = max(fields, default=-1) + 1
        vtable = len(self.data)
        self.data += bytes(4 + 2 * count)
        self._align(8)
        start = len(self.data)
        self.data += struct.pack("<i", start - vtable)
        later = []
        for field, part in fields.items():
            if isinstance(part, Scalar):
                self._align(struct.calcsize(part.kind))
                at = len(self.data)
                self.data += struct.pack(f"<{part.kind}", part.value)
            else:
                self._align(4)
                at = len(self.data)
                self.data += bytes(4)
                later.append((at, part))
            struct.pack_into("<H", self.data, vtable + 4 + 2 * field, at - start)
        struct.pack_into("<HH", self.data, vtable, 4 + 2 * count, len(self.data) - start)
        for at, part in later:
            self._link(at, part)
        return start

    def _vector(self, vector):
        if isinstance(vector.values, bytes):  # Buffers lie at multiples of 16.
            self.data += bytes(-(len(self.data) + 4) % 16)
            start = len(self.data)
            self.data += struct.pack("<I", len(vector.values)) + vector.values
            return start
        size = struct.calcsize(vector.kind)
        self.data += bytes(-(len(self.data) + 4) % max(size, 4))
        start = len(self.data)
        count = len(vector.values)
        length = count - 1 if vector.kind == "B" and vector.values[-1:] == [0] else count
        self.data += struct.pack(f"<I{count}{vector.kind}", length, *vector.values)
        return start

    def _tables(self, tables):
        start = len(self.data)
        self.data += struct.pack("<I", len(tables)) + bytes(4 * len(tables))
        for place, table in enumerate(tables):
            self._link(start + 4 + 4 * place, table)
        return start


class Writer:
    """A model in construction: one subgraph after another, which share buffers and codes."""

    def __init__(self):
        self.buffers = [{}]
        self.codes = []
        self.graphs = []
        self.signatures = []
        self._begin()

    def _begin(self):
        self.tensors, self.operators = [], []

    def tensor(self, name, shape, dtype="float32", *, scale=None, zero=None, axis=0, signature=None,
               buffer=0, type=None):  # fmt: skip
        """Add a tensor and return its index."""
        fields = {
            0: Vector("i", list(shape)),
            1: Scalar("b", TYPE_NAMES.index(type or TYPES[np.dtype(dtype).name])),
            2: Scalar("I", buffer),
            3: text(name),
        }
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.asarray(0 if zero is None else zero, np.int64), scales.shape)
            fields[4] = {
                2: Vector("f", scales.tolist()),
                3: Vector("q", zeros.tolist()),
                6: Scalar("i", axis),
            }
        if signature is not None:
            fields[7] = Vector("i", list(signature))
        self.tensors.append(fields)
        return len(self.tensors) - 1

    def constant(self, array, **quantization):
        """Add a constant and return its index."""
        array = np.asarray(array)
        self.buffers.append({0: Vector("B", array.tobytes())})
        name = f"constant{len(self.buffers)}"
        buffer = len(self.buffers) - 1
        return self.tensor(name, array.shape, array.dtype, buffer=buffer, **quantization)

    def op(self, name, inputs, outputs, **options):
        """Add an operator."""
        number = BUILTIN.index(name) if name in BUILTIN else CUSTOM
        version = Scalar("i", VERSIONS.get(name, 1))
        code = {0: Scalar("b", min(number, 127)), 2: version, 3: Scalar("i", number)}
        if number == CUSTOM:
            code[1] = text(name)
        if code not in self.codes:
            self.codes.append(code)
        fields = {
            0: Scalar("I", self.codes.index(code)),
            1: Vector("i", list(inputs)),
            2: Vector("i", list(outputs)),
        }
        if name in _OPTIONS:
            kinds = {key: (field, kind) for key, field, kind, _ in _OPTIONS[name].fields}
            fields[3] = Scalar("B", _OPTIONS[name].number)
            fields[4] = {kinds[key][0]: _part(kinds[key][1], v) for key, v in options.items()}
        self.operators.append(fields)

    def graph(self, inputs, outputs, name="main"):
        """End the subgraph at hand and return its index."""
        fields = {
            0: self.tensors,
            1: Vector("i", list(inputs)),
            2: Vector("i", list(outputs)),
            3: self.operators,
            4: text(name),
        }
        self.graphs.append(fields)
        self._begin()
        return len(self.graphs) - 1

    def signature(self, inputs, outputs, key="serving_default"):
        """Name the inputs and outputs of the main subgraph."""
        maps = [
            [{0: text(name), 1: Scalar("I", index)} for name, index in names.items()]
            for names in (inputs, outputs)
        ]
        self.signatures.append({0: maps[0], 1: maps[1], 2: text(key), 4: Scalar("I", 0)})

    def model(self, inputs=None, outputs=(), version=3):
        """Return the bytes of the file; `inputs` end the subgraph at hand."""
        if inputs is not None:
            self.graph(inputs, outputs)
        fields = {
            0: Scalar("I", version),
            1: self.codes,
            2: self.graphs,
            3: text("tests"),
            4: self.buffers,
        }
        if self.signatures:
            fields[7] = self.signatures
        return Flatbuffer().write(fields)


def _part(kind, value):
    if kind == "text":
        return text(value)
    return Vector("i", list(value)) if kind == "ints" else Scalar(kind, value)
