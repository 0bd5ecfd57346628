"""The main program of the process in which torch runs an exported program as a reference
(`reference_child.py`).

`torch.export.load` unpickles members of the file and evaluates its formulas as Python, which can
run arbitrary code of the file's author. So the process first gives up, permanently, access to all
files except those of the installation and of the system's libraries, to all networks, and to other
processes. If the kernel does not support these restrictions, the process refuses every order.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.frontends.torch.archive import Archive
from farrier.frontends.torch.importer import read_program
from farrier.frontends.torch.interface import Interface
from farrier.packaging.reference_child import Array, Order, read_arrays, serve_engine
from farrier_device import denials, installation, landlock
from farrier_device.sandbox import hide

if TYPE_CHECKING:
    import torch

_PR_SET_NO_NEW_PRIVS = 38
_PACKAGES = ("farrier", "farrier_device", "numpy", "ml_dtypes", "torch")
# The types that numpy does not have by itself, by their names in torch, as integers of their size.
_AS_INTEGERS = {
    "bfloat16": np.int16,
    "float8_e4m3fn": np.int8,
    "float8_e5m2": np.int8,
    "float8_e4m3fnuz": np.int8,
    "float8_e5m2fnuz": np.int8,
}


def serve() -> None:
    """Run the main loop of the process."""
    serve_engine(_start, _Programs().outputs)


def _start() -> str:
    if not _walled_in():
        raise SystemExit("this kernel has no walls for a process that loads pickles")
    import torch

    return str(torch.__version__)


def _walled_in() -> bool:
    """Apply the restrictions that the module's docstring lists, and return whether the kernel
    supports all of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    hide(libc)
    sys.path[:] = _installed()
    # Folders of temporary files and of compiled code, to which torch then writes nothing.
    tempfile.tempdir = os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.sep
    return bool(
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and landlock.restrict(libc, installation.readable(()))
        and denials.restrict_alone(libc)
    )


def _installed() -> list[str]:
    """Return the folders of `sys.path` that contain installed packages. The folders of a user's
    project are excluded, because the process could read them otherwise."""
    specs = map(importlib.util.find_spec, _PACKAGES)
    places = [
        Path(os.path.realpath(location)).parent
        for spec in specs
        if spec is not None
        for location in spec.submodule_search_locations or ()
    ]
    roots = [Path(os.path.realpath(root)) for root in (sys.prefix, sys.base_prefix)]
    return [
        entry
        for entry in filter(None, sys.path)
        if any(Path(os.path.realpath(entry)) == place for place in places)
        or any(Path(os.path.realpath(entry)).is_relative_to(root) for root in roots)
    ]


class _Programs:
    """The program of the file to which orders refer, which is loaded at the first order."""

    def __init__(self) -> None:
        self._loaded: tuple[torch.export.ExportedProgram, Interface] | None = None

    def outputs(self, order: Order, files: Sequence[int]) -> list[Array | list[Array]]:
        """Run the program on the inputs of an order, and return the outputs that the order names,
        in the frontend's naming. The first of `files` contains the program, the others the inputs.
        """
        import torch

        program, interface = self._loaded = self._loaded or _load(files[0])
        arrays = read_arrays(order["inputs"].values(), files[1:])
        feeds = dict(zip(order["inputs"], map(_tensor, arrays), strict=True))
        with torch.no_grad():
            results = _run(program, interface, feeds)
        return [_array(results[name]) for name in order["names"]]


def _load(file: int) -> tuple[torch.export.ExportedProgram, Interface]:
    """Return the program in an open file, as torch represents it, and its interface as the frontend
    reads it."""
    import torch

    with open(os.dup(file), "rb") as opened:
        opened.seek(0)  # The process that wrote the file shares the file position.
        data = mmap.mmap(file, 0, prot=mmap.PROT_READ)
        return torch.export.load(opened), Interface(read_program(Archive(memoryview(data))))


def _run(
    program: torch.export.ExportedProgram, interface: Interface, feeds: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """Run the graph of the program on inputs and mutated buffers, by name. Return the outputs by
    name."""
    signature = program.graph_signature
    arguments = [_argument(program, spec, feeds) for spec in signature.input_specs]
    values = list(program.graph_module(*arguments))
    changed = dict(zip(_names(signature.input_specs), arguments, strict=True))
    users = []
    for spec, value in zip(signature.output_specs, values, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            users.append(value)
        else:
            changed[str(spec.target)] = value
    results = [*users, *(changed[target] for target in interface.changed)]
    names = (name for name, _ in interface.outputs())
    return dict(zip(names, results, strict=True))


def _argument(
    program: torch.export.ExportedProgram, spec: Any, feeds: Mapping[str, torch.Tensor]
) -> Any:
    """Return the value of one input of the graph. It is either a value that the caller passes or a
    weight."""
    if spec.kind.name == "USER_INPUT":
        return feeds[spec.arg.name].clone() if spec.arg.name in feeds else spec.arg.value
    if spec.target in feeds:
        return feeds[spec.target].clone()
    weights = program.state_dict if spec.target in program.state_dict else program.constants
    return weights[spec.target]


def _names(specs: Sequence[Any]) -> Iterator[str]:
    """Yield the names that the interface uses for the inputs and buffers that a graph mutates."""
    for spec in specs:
        yield str(spec.target or getattr(spec.arg, "name", ""))


def _tensor(array: Array) -> torch.Tensor:
    import torch

    integers = _AS_INTEGERS.get(array.dtype.name)
    if integers is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(integers)).view(getattr(torch, array.dtype.name))


def _array(value: Any) -> Array:
    """Return a tensor, or a symbolic size, as a numpy array."""
    import torch

    if not isinstance(value, torch.Tensor):
        return np.asarray(value, np.int64)
    name = str(value.dtype).removeprefix("torch.")
    integers = _AS_INTEGERS.get(name)
    value = value.detach().contiguous()
    if integers is not None:
        value = value.view(getattr(torch, np.dtype(integers).name))
    array: Array = value.numpy()
    if integers is None:
        return array
    import ml_dtypes

    return array.view(getattr(ml_dtypes, name))
