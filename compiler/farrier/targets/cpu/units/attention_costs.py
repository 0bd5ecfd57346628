"""What attention takes besides its two products, in cycles of a core."""

from __future__ import annotations

import numpy as np

from farrier.space.machine import Machine
from farrier.space.space import Columns, Floats
from farrier.targets.cpu.units.attention_nests import part_rows

GROUP_CYCLES = (1.2, 0.2)  # to turn one group of the keys, to put one of the values together
EXPOSED = 0.15  # of the traffic beyond the first-level cache, what arithmetic does not hide
_SOFTMAX = 13.0  # a vector of scores: its maximum, exponential and sum
_ROW = 40.0  # to join the partial results of one row, twice
_JOIN = 20.0  # to store what is known of a row and a block of keys, and to join it
_PASSES = 5  # over the scores of a block: written, for the maximum, the exponential, its sum, read


def balance(heads: int, rows: int, columns: Columns, threads: int) -> Floats:
    """How much longer the busiest thread takes than an even share."""
    units = heads * columns["parts"]
    even: Floats = np.ceil(units / threads) / (units / threads)
    of_part = np.minimum(part_rows(rows, columns["block"], columns["parts"]), rows)
    return even * np.maximum(of_part * columns["parts"] / rows, 1.0)


def softmax_cycles(rows: int, keys: int, key_blocks: Floats, machine: Machine) -> Floats:
    """The rows of a head between the products, their keys in so many blocks."""
    joins = _ROW * key_blocks + _JOIN * np.where(key_blocks > 1, key_blocks, 0.0)
    cycles: Floats = rows * keys / machine.lanes * _SOFTMAX + rows * joins
    return cycles


def traffic_cycles(
    head_bytes: float, score_bytes: Floats, key_blocks: Floats, machine: Machine
) -> Floats:
    """The cycles in which a block of rows reads keys and values, `head_bytes` of them, and its
    scores and weights, `score_bytes` for each block of keys, from beyond the first-level cache."""
    passes = np.where(score_bytes > 0.6 * machine.l1_bytes, _PASSES, 0) * key_blocks

    def rate(beside: Floats | float) -> Floats:
        far = score_bytes + beside > 0.9 * machine.l2_bytes
        return np.where(far, machine.l3_bandwidth, machine.l2_bandwidth)

    again = head_bytes / key_blocks  # what the passes over the scores find beside them
    traffic: Floats = head_bytes / rate(head_bytes) + passes * 0.5 * score_bytes / rate(again)
    return traffic
