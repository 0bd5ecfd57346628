"""Upper and lower case: tables (`ops/strings.py`) with the same results as Python's str.upper and
str.lower.

These are Unicode's full, locale-independent mappings: ß becomes SS, and Σ at the end of a word
becomes ς.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops.strings import CASED, ELEMENTS, IGNORABLE, LONGER, PAGE

# Planes whose characters have cases, or are marks next to such.
_PLANES = (range(0x20000), range(0xE0000, 0xE0200))

Array = npt.NDArray[Any]


def change_case(scope: ImportScope, codes: str, to: str) -> str:
    """Return the code points of strings converted to the case `to`, "lower" or "upper"."""
    tables = map(scope.constant, _tables(to))
    return scope.add("ChangeCase", codes, *tables, to=to)


@functools.cache
def _tables(to: str) -> tuple[Array, Array, Array]:
    """Return the operands `pages`, `elements` and `longer` of the operator ChangeCase."""
    elements = np.zeros(_PLANES[-1].stop, np.int64)
    longer: dict[str, int] = {}
    for code in chain(*_PLANES):
        letter = chr(code)
        changed = letter.lower() if to == "lower" else letter.upper()
        if len(changed) == 1:
            elements[code] = (ord(changed) - code) % ELEMENTS
        else:
            elements[code] = (LONGER + longer.setdefault(changed, len(longer)) - code) % ELEMENTS
        if to == "lower":
            elements[code] |= _sigma_flag(letter)
    used, pages = np.unique(elements.reshape(-1, PAGE), axis=0, return_inverse=True)
    width = max(map(len, longer))
    rows = [[ord(c) for c in text.ljust(width, "\0")] for text in longer]
    return pages.reshape(-1).astype(np.uint32), used.astype(np.uint32), np.array(rows, np.uint32)


def _sigma_flag(letter: str) -> int:
    """Return the flag of a character that decides whether a Σ next to it is final and becomes ς:
    CASED, IGNORABLE, or 0 for any other character. As in Python, Σ is final after a cased
    character, possibly with ignorable characters in between."""
    if f"A{letter}Σ".lower()[-1] != "ς":
        return 0
    return CASED if f"{letter}Σ".lower()[-1] == "ς" else IGNORABLE
