"""The cost of attention apart from its two products, in cycles of a core."""

from __future__ import annotations

import numpy as np

from farrier.space.machine import Machine
from farrier.space.space import Columns, Floats
from farrier.targets.cpu.units.attention_nests import part_rows

# Cycles to transpose one group of keys, and to assemble one group of values.
GROUP_CYCLES = (1.2, 0.2)
# The share of the traffic from beyond the first-level cache that arithmetic does not hide.
EXPOSED = 0.15
_SOFTMAX = 13.0  # Cycles for a vector of scores: maximum, exponential and sum.
_ROW = 40.0  # Cycles to combine the partial results of one row, for the maximum and the sum.
_JOIN = 20.0  # Cycles to store the results of a row for one block of keys, and to combine them.
# The passes over the scores of a block: written, read for the maximum, for the exponential and its
# sum, and for the product.
_PASSES = 5


def balance(heads: int, rows: int, columns: Columns, threads: int) -> Floats:
    """Return the work of the busiest thread divided by the average work of a thread, for each
    candidate."""
    units = heads * columns["parts"]
    even: Floats = np.ceil(units / threads) / (units / threads)
    of_part = np.minimum(part_rows(rows, columns["block"], columns["parts"]), rows)
    return even * np.maximum(of_part * columns["parts"] / rows, 1.0)


def softmax_cycles(rows: int, keys: int, key_blocks: Floats, machine: Machine) -> Floats:
    """Return the cycles of the softmax in all rows of a head, when the keys are divided into
    `key_blocks` blocks."""
    joins = _ROW * key_blocks + _JOIN * np.where(key_blocks > 1, key_blocks, 0.0)
    cycles: Floats = rows * keys / machine.lanes * _SOFTMAX + rows * joins
    return cycles


def traffic_cycles(
    head_bytes: float, score_bytes: Floats, key_blocks: Floats, machine: Machine
) -> Floats:
    """Return the cycles in which a block of rows fetches its data from beyond the first-level
    cache: `head_bytes` of keys and values, and `score_bytes` of scores and weights for each of
    `key_blocks` blocks of keys."""
    passes = np.where(score_bytes > 0.6 * machine.l1_bytes, _PASSES, 0) * key_blocks

    def rate(beside: Floats | float) -> Floats:
        far = score_bytes + beside > 0.9 * machine.l2_bytes
        return np.where(far, machine.l3_bandwidth, machine.l2_bandwidth)

    # The data of keys and values that competes with the scores for the cache.
    again = head_bytes / key_blocks
    traffic: Floats = head_bytes / rate(head_bytes) + passes * 0.5 * score_bytes / rate(again)
    return traffic
