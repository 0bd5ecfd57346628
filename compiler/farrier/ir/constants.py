"""Store the constants that are too large for the text of the IR as files in a folder next to it.

    stages/0-import.ir      w: f32[64, 32] = constant("7c6a28df…")
    stages/constants/7c6a28df….npy

Each file is named by the sha256 of its content (`Constant.digest`), so several texts share one
file, and damaged content is detected. The files contain no code: only plain arrays are read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.files.atomic import write_atomically
from farrier.ir.graph import Constant, Derived, Graph, Node, digest_of, is_of_numpy
from farrier.ir.printer import is_written_out
from farrier.ir.types import TensorType

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    Array = Any

FOLDER = "constants"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class StoredConstants(Mapping[str, Array]):
    """The constants in a folder, by sha256; each is memory-mapped when it is first read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getitem__(self, digest: str) -> Array:
        """Return the array with this sha256. Raises KeyError without such a file, UsageError
        if the content of the file has another sha256."""
        import numpy as np

        path = self._path(digest)
        if not path.is_file():
            raise KeyError(digest)
        try:
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
            is_right = digest_of(array) == digest
        except (OSError, ValueError, EOFError):
            is_right = False
        if not is_right:
            raise UsageError(
                f"{path} is damaged: it does not hold the array of its name",
                hint="dump the stages again: farrier compile --dump DIR",
            )
        return array

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and bool(
            _DIGEST.fullmatch(digest) and self._path(digest).is_file()
        )

    def __iter__(self) -> Iterator[str]:
        names = (path.stem for path in self._folder.glob("*.npy"))
        return (name for name in names if _DIGEST.fullmatch(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.npy"


def beside(text: Path) -> StoredConstants:
    """Return the constants that belong to the IR text in the file `text`. They are in a folder
    next to the file or, if a dump wrote several texts into a folder of their own, next to that
    folder."""
    folders = (text.parent / FOLDER, text.absolute().parent.parent / FOLDER)
    return StoredConstants(next((folder for folder in folders if folder.is_dir()), folders[0]))


class ConstantFiles:
    """A writer of constants into a folder, which stores each distinct content once."""

    def __init__(self, folder: Path) -> None:
        self._stored = StoredConstants(folder)
        self._folder = folder
        # The digest of the content by the digest of its derivation.
        self._made: dict[str, str] = {}

    def store(self, graph: Graph) -> Graph:
        """Write the arrays that the text of `graph` omits into the folder, and return `graph` in
        the form in which the text is read back: derived constants become arrays, in regions too.
        Raises StorageError."""
        constants = tuple(map(self._store, graph.constants))
        nodes = tuple(map(self._with_regions, graph.nodes))
        same = all(new is old for new, old in zip(constants, graph.constants, strict=True))
        if same and all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
            return graph
        return dataclasses.replace(graph, constants=constants, nodes=nodes)

    def _with_regions(self, node: Node) -> Node:
        regions = tuple(map(self.store, node.regions))
        if all(new is old for new, old in zip(regions, node.regions, strict=True)):
            return node
        return dataclasses.replace(node, regions=regions)

    def _store(self, constant: Constant) -> Constant:
        if isinstance(constant.content, Derived):
            digest = self._made.get(constant.digest)
            if digest is None:
                computed = Constant(constant.value, constant.made())
                if is_written_out(computed):
                    return computed
                self._write(computed)
                digest = self._made[constant.digest] = computed.digest
            # Not the array itself: all of them would take the memory of the weights once more.
            return Constant.named(constant.value, self._mapped(digest, constant.value.type), digest)
        if not is_written_out(constant):
            self._write(constant)
        return constant

    def _mapped(self, digest: str, type: TensorType) -> Array:
        import numpy as np

        array: Array = np.load(self._folder / f"{digest}.npy", mmap_mode="r", allow_pickle=False)
        return array.view(type.dtype.numpy)

    def _write(self, constant: Constant) -> None:
        import numpy as np

        if constant.digest not in self._stored:
            path, data = self._folder / f"{constant.digest}.npy", constant.data
            if not is_of_numpy(data.dtype):  # Files of .npy cannot hold the types of ml_dtypes.
                data = data.view(f"V{data.itemsize}")
            write_atomically(path, lambda file: np.save(file, data, allow_pickle=False))
