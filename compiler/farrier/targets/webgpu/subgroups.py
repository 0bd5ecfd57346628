"""Exchanges between the threads of a block in WGSL, for adapters with the feature `subgroups`.

WGSL fixes neither the number of threads in a subgroup nor which threads these are. In a kernel with
exchanges, threads are therefore numbered by subgroup when it runs, so that each subgroup has
neighbouring numbers. Threads of one subgroup exchange registers; threads of different ones do so
through workgroup memory. A result does not depend on the size of a subgroup.
"""

from __future__ import annotations

from farrier.intrinsics.exchanges import MASKS
from farrier.ir.loop import Intrinsic, Stmt
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import exchange_name
from farrier.ir.types import DType
from farrier.targets.gpu.device import LEAST

# The types of words, which threads exchange; and by each exchange the bit in which they differ.
EXCHANGED = (DType.F32, DType.I32, DType.U32)
EXCHANGES = {exchange_name(dtype, mask): mask for dtype in EXCHANGED for mask in MASKS}

SHARED_BYTES = 4 * LEAST.threads  # The workgroup memory that exchanges take in a kernel.

# The word of the thread whose number differs in one bit. `lanes` is the same in the whole block:
# all of its threads come to the barriers, or none. The second barrier keeps the next exchange from
# replacing words that other threads have yet to read.
TEXT = f"""
fn exchanged(word: u32, bit: u32, thread: u32, lanes: u32) -> u32 {{
  if (bit < lanes) {{
    return subgroupShuffleXor(word, bit);
  }}
  exchanged_words[thread] = word;
  workgroupBarrier();
  let other = exchanged_words[thread ^ bit];
  workgroupBarrier();
  return other;
}}
var<workgroup> exchanged_words: array<u32, {LEAST.threads}>;
"""

PARAMETERS = (
    "  @builtin(local_invocation_index) index_: u32,",
    "  @builtin(num_subgroups) subgroups_: u32,",
    "  @builtin(subgroup_id) subgroup_: u32,",
    "  @builtin(subgroup_size) size_: u32,",
    "  @builtin(subgroup_invocation_id) lane_: u32,",
)


def has_exchanges(body: Stmt) -> bool:
    """Check whether threads exchange values in a statement."""
    return any(isinstance(stmt, Intrinsic) for stmt in walk_stmts(body))


def thread_number(threads: int) -> list[str]:
    """Return the WGSL statements that define two variables of a thread. `thread_` is its number in
    the block, such that the threads of a subgroup have consecutive numbers. `lanes_` is the number
    of threads in a subgroup. If a block of `threads` threads has a subgroup that is not full,
    `lanes_` is 0, and exchanges use workgroup memory instead."""
    return [
        f"  let are_complete_ = subgroups_ * size_ == {threads}u;",
        "  let lanes_ = select(0u, size_, are_complete_);",
        "  let thread_ = select(index_, subgroup_ * size_ + lane_, are_complete_);",
    ]
