"""Compute the key of a cache entry: compilations with equal keys produce the same code."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import threading
from collections.abc import Iterator, Mapping

import farrier
import farrier_device
from farrier import plugins
from farrier.options import CompileOptions
from farrier.targets import parse_target

# Distributions whose versions change the code.
_MAKERS = ("llvmlite", "ml_dtypes", "numpy", "onnx", "xgboost", "xgboost-cpu", "ziglang")
_reading = threading.Lock()


def entry_key(content: str, options: CompileOptions, sizes: Mapping[str, int]) -> str:
    """Return the key of a cache entry, 64 hex digits. It is a hash of the model's content, of every
    option that affects the code, of the target as this machine resolves it, of the fixed sizes of
    dims by name, and of the compiler itself."""
    target = parse_target(options.target)
    asked = {
        **dataclasses.replace(options, cores=0).to_dict(),
        "target": target.to_dict(),
        "threads": options.threads or target.threads,
    }
    whole = {
        "content": content,
        "options": asked,
        "sizes": dict(sizes),
        "version": farrier.__version__,
        "code": compiler_stamp(),
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


@functools.cache
def compiler_stamp() -> str:
    """Return a hash that changes with the compiler: over the names, sizes and times of its files,
    and the versions of the packages with which it generates code or that extend it.

    Farrier's version alone would not suffice, as developers change the compiler without changing
    the version. Hashing the contents of the files would take longer than loading an entry.
    """
    state = hashlib.sha256()
    for package in (farrier, farrier_device):
        root = package.__path__[0]
        for path, status in sorted(_files(root)):
            line = f"{path.removeprefix(root)} {status.st_size} {status.st_mtime_ns}\n"
            state.update(line.encode(errors="surrogateescape"))
    _update_with_makers(state)
    return state.hexdigest()


def _update_with_makers(state: hashlib._Hash) -> None:
    for name in _MAKERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            state.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    for line in plugins.declared():
        state.update(f"{line}\n".encode())


def compiler_digest() -> str:
    """Return a hash of the contents of the compiler's files, equal on all machines with the same
    compiler. Safe to call from many threads; a single thread reads the files."""
    with _reading:
        return _read_digest()


@functools.cache
def _read_digest() -> str:
    state = hashlib.sha256()
    for package in (farrier, farrier_device):
        root = package.__path__[0]
        for path in sorted(path for path, _ in _files(root)):
            state.update(path.removeprefix(root).encode(errors="surrogateescape"))
            with open(path, "rb") as file:
                state.update(hashlib.file_digest(file, "sha256").digest())
    _update_with_makers(state)
    return state.hexdigest()


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.is_file():  # A link to nothing, such as an editor's lock, is not a file.
                yield entry.path, entry.stat()
