"""The features of candidates for the learned cost model: a table with named columns.

A name means the same in every rule, task and machine, so that the model can learn across them.
Rules, knobs and machines may be added and removed: a table lacks the columns for which its space
has no data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True, slots=True)
class Features:
    """A table of features, float32 of shape [candidates, names], in which NaN stands for a missing
    value."""

    names: tuple[str, ...]
    table: npt.NDArray[np.float32]

    @classmethod
    def of(cls, columns: Mapping[str, npt.NDArray[np.float64]]) -> Features:
        """Build a table from columns by name, each [candidates]."""
        return cls(tuple(columns), np.stack([*columns.values()], axis=1).astype(np.float32))

    @classmethod
    def joined(cls, parts: Sequence[Features]) -> Features:
        """Return one table with the candidates of all tables in `parts`. It has every column that
        any of the tables has; values for tables without the column are NaN."""
        names = tuple(dict.fromkeys(name for part in parts for name in part.names))
        return cls(names, np.concatenate([part.under(names) for part in parts]))

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: npt.NDArray[np.bool_ | np.intp]) -> Features:
        """Return the rows of the candidates that a mask or an array of numbers selects."""
        return Features(self.names, self.table[rows])

    def beside(self, name: str, value: float) -> Features:
        """Return the table with the additional feature `name`, which has the value `value` for all
        candidates."""
        column = np.full((len(self.table), 1), value, np.float32)
        return Features((*self.names, name), np.concatenate([self.table, column], axis=1))

    def column(self, name: str) -> npt.NDArray[np.float32]:
        """Return the values of one feature, of shape [candidates]."""
        return self.table[:, self.names.index(name)]

    def under(self, names: tuple[str, ...]) -> npt.NDArray[np.float32]:
        """Return a table with exactly the columns `names`, in this order. Columns that this table
        does not have are filled with NaN."""
        if names == self.names:
            return self.table
        places = {name: place for place, name in enumerate(self.names)}
        table = np.full((len(self.table), len(names)), np.nan, np.float32)
        for place, name in enumerate(names):
            if name in places:
                table[:, place] = self.table[:, places[name]]
        return table
