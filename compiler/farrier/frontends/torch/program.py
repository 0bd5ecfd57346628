"""The dataclasses of an exported program's graph and signature, parsed from JSON.

The schema is that of `torch.export` (major version 8). An argument is a tagged union there; here it
is a Python value: a number, a string, a list, None, or one of the classes below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from farrier.errors import InvalidModelError
from farrier.ir.types import DType

SCHEMA = 8  # The major version that this reads.
_MOST_NODES = 1_000_000
_MOST_LEVELS = 100  # The limit on nested graphs.
_LONGEST_LINE = 200  # Characters of a line of the user's source.

# The element types by their numbers in the schema (`torch._export.serde.schema.ScalarType`).
DTYPES = {
    1: DType.U8,
    2: DType.I8,
    3: DType.I16,
    4: DType.I32,
    5: DType.I64,
    6: DType.F16,
    7: DType.F32,
    8: DType.F64,
    12: DType.BOOL,
    13: DType.BF16,
    28: DType.U16,
    29: DType.F8E4M3FN,
    30: DType.F8E5M2,
    31: DType.F8E4M3FNUZ,
    32: DType.F8E5M2FNUZ,
}
_NO_DTYPE = {9: "complex32", 10: "complex64", 11: "complex128"}


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value of the graph, by name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Formula:
    """A size that is a formula of symbols, as text that `symbols` parses."""

    text: str
    hint: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TensorMeta:
    """The type of a tensor."""

    dtype: DType | None  # None if Farrier lacks the type, of this `number`.
    number: int
    sizes: tuple[int | Formula, ...]
    strides: tuple[int | Formula, ...]
    offset: int | Formula = 0

    @property
    def type_name(self) -> str:
        """The element type as a message names it."""
        return str(self.dtype or _NO_DTYPE.get(self.number, f"number {self.number}"))


Argument: TypeAlias = Any  # A number, str, None, DType, Ref, Graph, or a list.


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A node of the graph: the operator's name, its arguments, and the names of its results, in a
    list where the operator returns a list."""

    name: str
    target: str
    positional: tuple[Argument, ...]
    keywords: Mapping[str, Argument]
    outputs: tuple[str | tuple[str, ...], ...]
    trace: str

    @property
    def line(self) -> str:
        """The line of the user's Python code that created the node, such as `net.py:12: x =
        self.norm(x)`."""
        return _user_line(self.trace)


@dataclasses.dataclass(frozen=True, slots=True)
class Graph:
    """The graph of a program, or a nested graph of a higher-order operator."""

    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    calls: tuple[Call, ...]
    tensors: Mapping[str, TensorMeta]


@dataclasses.dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of the graph. `kind` is parameter, buffer, tensor_constant, user_input, …; `target`
    is the qualified name of a weight."""

    kind: str
    value: Argument
    target: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class OutputSpec:
    """An output of the graph: a user_output, or the new content of the buffer or input `target`."""

    kind: str
    value: Argument
    target: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """An exported program."""

    graph: Graph
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    ranges: Mapping[str, tuple[int | None, int | None]]
    output_tree: str  # The tree of the outputs as JSON, or "".
    producer: str


def program_of(document: Mapping[str, Any]) -> Program:
    """Parse the JSON of `models/model.json`. Raises InvalidModelError."""
    try:
        major = int(document["schema_version"]["major"])
        if major != SCHEMA:
            raise InvalidModelError(
                f"the .pt2 file has version {major} of the schema, and Farrier reads {SCHEMA}",
                hint="save the model with torch 2.6 or newer; of torch 2.13 all forms are known",
            )
        module = document["graph_module"]
        signature = module["signature"]
        return Program(
            _graph(module["graph"], 0),
            tuple(map(_input_spec, signature["input_specs"])),
            tuple(map(_output_spec, signature["output_specs"])),
            {str(name): _range(entry) for name, entry in document["range_constraints"].items()},
            _output_tree(module),
            f"torch {document.get('torch_version', '')}".strip(),
        )
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as e:
        raise InvalidModelError(
            f"the graph of the .pt2 file is malformed: {type(e).__name__}: {e}",
            hint='save it again with torch.export.save(exported_program, "model.pt2")',
        ) from e


def _graph(entry: Mapping[str, Any], level: int) -> Graph:
    if len(entry["nodes"]) > _MOST_NODES or level > _MOST_LEVELS:
        raise ValueError("it has too many nodes, or graphs in graphs")
    return Graph(
        tuple(argument(item, level) for item in entry["inputs"]),
        tuple(argument(item, level) for item in entry["outputs"]),
        tuple(_call(node, level) for node in entry["nodes"]),
        {str(name): tensor_meta(meta) for name, meta in entry["tensor_values"].items()},
    )


def _call(node: Mapping[str, Any], level: int) -> Call:
    positional, keywords = [], {}
    for item in node["inputs"]:
        value = argument(item["arg"], level)
        if item.get("kind") == 2:  # KEYWORD; 1 is POSITIONAL.
            keywords[str(item["name"])] = value
        else:
            positional.append(value)
    outputs = tuple(_results(item) for item in node["outputs"])
    first = next((o for o in outputs if isinstance(o, str) and o), str(node["target"]))
    trace = str((node.get("metadata") or {}).get("stack_trace") or "")
    target = str(node["target"]).removeprefix("torch.ops.")
    name = str(node.get("name") or first)
    return Call(name, target, tuple(positional), keywords, outputs, trace)


def _results(item: Mapping[str, Any]) -> str | tuple[str, ...]:
    ((tag, value),) = item.items()
    match tag:
        case "as_none":
            return ""
        case "as_tensors":
            return tuple(str(entry["name"]) for entry in value)
        case "as_optional_tensors":
            return tuple(str((entry.get("as_tensor") or {}).get("name", "")) for entry in value)
        case "as_tensor":
            return str(value["name"])
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return str(value["as_name"])
    raise ValueError(f"a result of the kind {tag!r}")


def argument(item: Mapping[str, Any], level: int = 0) -> Argument:
    """Parse a tagged argument to a Python value. Raises ValueError for an unknown tag."""
    ((tag, value),) = item.items()
    match tag:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(str(value["name"]))
        case "as_tensors":
            return [Ref(str(entry["name"])) for entry in value]
        case "as_optional_tensors":
            return [argument(entry, level) for entry in value]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(value)
        case "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(entry) for entry in value]
        case "as_int":
            return int(value)
        case "as_float":
            return float(value)
        case "as_bool":
            return bool(value)
        case "as_string":
            return str(value)
        case "as_ints":
            return [int(entry) for entry in value]
        case "as_floats":
            return [float(entry) for entry in value]
        case "as_bools":
            return [bool(entry) for entry in value]
        case "as_strings":
            return [str(entry) for entry in value]
        case "as_int_lists":
            return [[int(entry) for entry in inner] for inner in value]
        case "as_scalar_type":
            return _dtype(int(value))
        case "as_memory_format" | "as_layout" | "as_device":
            return None
        case "as_graph":
            return _graph(value["graph"], level + 1)
    raise ValueError(f"an argument of the kind {tag!r}")


def _symbolic(value: Mapping[str, Any]) -> Argument:
    ((tag, inner),) = value.items()
    return Ref(str(inner)) if tag == "as_name" else argument({tag: inner})


def _dtype(number: int) -> DType:
    if number not in DTYPES:
        name = _NO_DTYPE.get(number, f"number {number}")
        raise InvalidModelError(
            f"the .pt2 file uses torch's element type {name}, which Farrier does not have",
            hint="export a module that computes with real numbers",
        )
    return DTYPES[number]


def tensor_meta(entry: Mapping[str, Any]) -> TensorMeta:
    """Parse the type of a tensor. Raises ValueError, KeyError, TypeError."""
    number = int(entry["dtype"])
    return TensorMeta(
        DTYPES.get(number),
        number,
        tuple(map(_size, entry["sizes"])),
        tuple(map(_size, entry["strides"])),
        _size(entry["storage_offset"]),
    )


def _size(entry: Mapping[str, Any]) -> int | Formula:
    ((tag, value),) = entry.items()
    if tag == "as_int":
        return int(value)
    if tag != "as_expr":
        raise ValueError(f"a size of the kind {tag!r}")
    hint = (value.get("hint") or {}).get("as_int")
    return Formula(str(value["expr_str"]), None if hint is None else int(hint))


def _input_spec(entry: Mapping[str, Any]) -> InputSpec:
    ((kind, value),) = entry.items()
    arg = value["arg"]
    if kind == "constant_input":
        return InputSpec(kind, None, str(value["name"]))
    if kind == "user_input":
        return InputSpec(kind, argument(arg))
    target = value.get(f"{kind}_name", value.get("buffer_name", ""))
    return InputSpec(kind, Ref(str(arg["name"])), str(target))


def _output_spec(entry: Mapping[str, Any]) -> OutputSpec:
    ((kind, value),) = entry.items()
    arg = value["arg"]
    if kind == "user_output":
        return OutputSpec(kind, argument(arg))
    target = value.get("buffer_name", value.get("user_input_name", value.get("parameter_name", "")))
    return OutputSpec(kind, Ref(str(arg["name"])), str(target))


def _range(entry: Mapping[str, Any]) -> tuple[int | None, int | None]:
    low, high = entry.get("min_val"), entry.get("max_val")
    return None if low is None else int(low), None if high is None else int(high)


def _output_tree(module: Mapping[str, Any]) -> str:
    entries: Sequence[Any] = module.get("module_call_graph") or ()
    root = next((entry for entry in entries if entry.get("fqn") == ""), None)
    return str(((root or {}).get("signature") or {}).get("out_spec") or "")


def _user_line(trace: str) -> str:
    """Return the last frame of a stack trace outside of installed packages, or the last frame if
    there is none."""
    frames = []
    lines = trace.splitlines()
    for number, line in enumerate(lines):
        parts = line.strip().split('"')
        if line.strip().startswith('File "') and len(parts) >= 3:
            source = lines[number + 1].strip() if number + 1 < len(lines) else ""
            place = parts[2].partition("line ")[2].partition(",")[0]
            frames.append((parts[1], place, source))
    own = [frame for frame in frames if "site-packages" not in frame[0] and frame[0][:1] != "<"]
    if not frames:
        return ""
    file, place, source = (own or frames)[-1]
    return f"{file.rpartition('/')[2]}:{place}: {source}"[:_LONGEST_LINE]
