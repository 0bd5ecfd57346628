"""The table of loop passes by name. A backend selects the passes for a kernel and their order.

Each pass is a pure function in a module of its name, and returns its argument if nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from farrier.ir.loop import Function
from farrier.lower.eliminate_dead_stores import eliminate_dead_stores
from farrier.lower.lengthen_short_loops import lengthen_short_loops
from farrier.lower.lower_threads import lower_threads
from farrier.lower.merge_halos import merge_halos
from farrier.lower.partition_loops import partition_loops
from farrier.lower.write_whole_words import write_whole_words
from farrier.lower.write_whole_words_but_f16 import write_whole_words_but_f16

LoopPass: TypeAlias = Callable[[Function], Function]

PASSES: Mapping[str, LoopPass] = {
    "eliminate-dead-stores": eliminate_dead_stores,
    "lengthen-short-loops": lengthen_short_loops,
    "lower-threads": lower_threads,
    "merge-halos": merge_halos,
    "partition-loops": partition_loops,
    "write-whole-words": write_whole_words,
    "write-whole-words-but-f16": write_whole_words_but_f16,
}
