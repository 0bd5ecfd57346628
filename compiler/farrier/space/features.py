"""What the learned model sees of candidates: a table whose columns have names.

A name means the same in every rule, task and machine, so that what one teaches holds for others.
Rules, knobs and machines may come and go: a table lacks the columns that its space says nothing of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """`table` [candidates, names] is float32, NaN where nothing is said."""

    names: tuple[str, ...]
    table: npt.NDArray[np.float32]

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[np.float64]]) -> Features:
        """Columns by name, each [candidates]."""
        return cls(tuple(columns), np.stack([*columns.values()], axis=1).astype(np.float32))

    @classmethod
    def joined(cls, parts: Sequence[Features]) -> Features:
        """All candidates one after another, under all names."""
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        return cls(names, np.concatenate([part.under(names) for part in parts]))

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: npt.NDArray[np.bool_ | np.intp]) -> Features:
        """Some of the candidates, by a mask or by their numbers."""
        return Features(self.names, self.table[rows])

    def beside(self, name: str, value: float) -> Features:
        """With one more feature, which all candidates share."""
        column = np.full((len(self.table), 1), value, np.float32)
        return Features((*self.names, name), np.concatenate([self.table, column], axis=1))

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """One feature, [candidates]."""
        return self.table[:, self.names.index(name)]

    def under(self, names: tuple[str, ...]) -> npt.NDArray[np.float32]:
        """The table with these columns, in this order."""
        if names == self.names:
            return self.table
        known = {name: place for place, name in enumerate(self.names)}
        table = np.full((len(self.table), len(names)), np.nan, np.float32)
        for place, name in enumerate(names):
            if name in known:
                table[:, place] = self.table[:, known[name]]
        return table
