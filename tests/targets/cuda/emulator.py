"""Runs PTX with no GPU, in numpy: a register is an array over the threads of some blocks.

Threads that are at the same instruction run it together; of several places in the code the first
is next, so that threads which a branch has parted meet again behind it. An unknown instruction, an
address outside of every array or misaligned, a value that depends on memory which nobody wrote, a
race, and a barrier that not all threads of a block reach are each a PtxError that names the kernel
and the instructions.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from tests.targets.cuda import arithmetic
from tests.targets.cuda.accesses import Accesses
from tests.targets.cuda.carries import Carries
from tests.targets.cuda.copies import Copies
from tests.targets.cuda.fetches import Fetches
from tests.targets.cuda.memory import PLACE, Array
from tests.targets.cuda.ptx import PtxError, dtype_of, listed
from tests.targets.cuda.shadow import Shadow
from tests.targets.cuda.tensor_cores import bf16
from tests.targets.cuda.traffic import LANES
from tests.targets.cuda.warpgroups import Warpgroups
from tests.targets.cuda.warps import Warps

_AT_ONCE = 1 << 14  # Threads: enough that the cost of a call of numpy does not show.


def launch(kernel, blocks, threads, arguments, memory, traffic=None, most_blocks=None):
    """Run a kernel, and count its `traffic`; with `most_blocks` only that number of its blocks,
    spread over all. Return the places of the waits and of the barriers of warps that something had
    to wait for. Raises PtxError."""
    if threads > kernel.most_threads:
        raise PtxError(f"{kernel.name} takes {kernel.most_threads} threads, and not {threads}")
    at_once = max(1, _AT_ONCE // threads)
    history = History(kernel, arguments, memory)
    count = blocks if most_blocks is None else min(blocks, most_blocks)
    chosen = np.arange(count) * blocks // count
    with np.errstate(all="ignore"):
        for first in range(0, count, at_once):
            numbers = chosen[first : first + at_once].astype(np.uint32)
            _Run(kernel, numbers, threads, arguments, memory, history, traffic).run()
    return history.needed


class History:
    """The barriers of a launch so far, the shadows of the arrays that it may write, and the places
    that something had to wait for."""

    def __init__(self, kernel, arguments, memory):
        self.time = 0
        self.needed = set()
        self.shadows = {
            number: Shadow(len(memory.arrays[number].content), kernel.grain)
            for number in {arguments[position] >> PLACE for position in kernel.written}
            if number in memory.arrays
        }


class _Run(Accesses, Warps, Warpgroups, Fetches, Carries):
    """Some blocks. `_mask` are the threads that run the instruction at hand."""

    def __init__(self, kernel, numbers, threads, arguments, memory, history, traffic):
        self._kernel, self._arguments, self._memory = kernel, arguments, memory
        self._count = len(numbers) * threads
        self._block = np.repeat(np.arange(len(numbers)), threads)
        self._blocks, self._threads = len(numbers), threads
        self._registers = {
            "%tid.x": np.tile(np.arange(threads, dtype=np.uint32), len(numbers)),
            "%ctaid.x": np.repeat(numbers, threads),
            "%ntid.x": np.full(self._count, threads, np.uint32),
        }
        lane = np.arange(threads, dtype=np.uint32) % LANES
        self._registers["%laneid"] = np.tile(lane, len(numbers))
        self._number = np.repeat(numbers.astype(np.int32), threads)
        self._thread = self._number * threads + self._registers["%tid.x"].astype(np.int32)
        self._history, self._traffic = history, traffic
        self._places = dict(kernel.places)
        for name, content in kernel.constants.items():
            self._places[name] = memory.constant(content)
        self._carry = np.zeros(self._count, bool)
        # The memory of one block or thread after the other, in whole elements of 16 bytes.
        self._shared_bytes, self._local_bytes = kernel.shared_bytes, kernel.local_bytes
        self._shared_step, self._local_step = (
            -(-nbytes // 16) * 16 for nbytes in (kernel.shared_bytes, kernel.local_bytes)
        )
        self._shared = Array(len(numbers) * self._shared_step)
        self._local = Array(self._count * self._local_step)
        self._shared_shadow = Shadow(len(self._shared.content), kernel.grain)
        self._copies = Copies(self._count)
        self._begin_products()
        self._begin_fetches()
        self._apart = np.zeros(self._count, bool)
        # LLVM may move a load to before the condition that guards it. Registers are marked that
        # hold bytes which nobody wrote: to depend on them is the fault.
        self._nothing = np.zeros(self._count, bool)
        self._undefined = {}
        self._doubt = self._nothing  # The threads whose operands so far are undefined.
        self._mask = np.ones(self._count, bool)
        self._at, self._place = kernel.code[0], 0

    def _fail(self, what) -> NoReturn:
        raise PtxError(f"kernel {self._kernel.name}: {what}: {self._at.text}")

    # -- control

    def run(self):
        code, end = self._kernel.code, len(self._kernel.code)
        places = np.zeros(self._count, np.int64)
        waiting = np.zeros(self._count, bool)
        self._held = np.zeros(self._count, bool)
        while True:
            running = (places < end) & ~waiting & ~self._held & (self._gathered < 0)
            if not running.any():
                if self._held.any() or np.any(self._gathered >= 0):
                    self._fail("not all threads of a warp or warpgroup reach the instruction")
                if not waiting.any():
                    return
                self._meet(waiting, places >= end)
                waiting[:] = False
                continue
            place = int(places[running].min())
            self._at, self._place = code[place], place
            here = running & (places == place)
            self._mask = here & self._guard(here)
            places[here] = place + 1
            match self._at.name:
                case "bra":
                    self._part(here)
                    places[self._mask] = self._kernel.labels[self._at.operands[0]]
                case "ret" | "exit":
                    places[self._mask] = end
                case "bar" if "warp" in self._at.suffixes:
                    self._meet_in_warps()
                case "bar" | "barrier":
                    waiting |= self._mask
                case "wgmma" if "mma_async" in self._at.suffixes:
                    if self._gather():
                        self._step()
                case _ if self._mask.any():
                    self._step()

    def _part(self, here):
        """Mark the warps of which a branch takes some threads: hardware may leave them apart until
        a barrier, even where their paths join again."""
        if self._threads % LANES == 0:
            taken, left = self._mask, here & ~self._mask
            parted = taken.reshape(-1, LANES).any(1) & left.reshape(-1, LANES).any(1)
            self._apart |= np.repeat(parted, LANES)

    def _guard(self, here):
        if self._at.guard is None:
            return True
        register, is_negated = self._at.guard
        self._doubt = self._nothing  # The instruction before may have left its own.
        holds = self._get(register, np.dtype(bool)) ^ is_negated
        self._mask = here
        self._settle()
        return holds

    def _settle(self):
        """Fail if the operands so far are undefined in a thread under the mask; forget them."""
        if np.any(self._doubt & self._mask):
            self._fail("a value depends on memory that nobody has written")
        self._doubt = self._nothing

    def _meet(self, waiting, ended):
        """Let the threads at a barrier go on."""
        arrived = np.bincount(self._block[waiting], minlength=self._blocks)
        if np.any((arrived > 0) & (arrived < self._threads)) or np.any(
            ended & (arrived[self._block] > 0)
        ):
            self._fail("not all threads of a block reach the barrier")
        self._apart &= ~waiting
        self._meet_products()
        self._history.time += 1

    def _step(self):
        self._doubt = self._nothing
        name = self._at.name
        if method := getattr(self, f"_do_{name}", None):
            method()
        elif name in arithmetic.BINARY:
            table = arithmetic.OF_NAN if "NaN" in self._at.suffixes else arithmetic.BINARY
            self._computed(table[name])
        elif name in arithmetic.UNARY:
            self._computed(arithmetic.UNARY[name])
        else:
            self._fail("an opcode that the emulator does not have")

    # -- operands

    def _get(self, operand, dtype):
        """Return an operand as an array of a type over all threads."""
        if operand[0] == "%" and operand not in self._registers and operand not in self._places:
            self._leave_undefined(operand)
        if operand[0] == "%":
            self._check_register(operand)
        value = self._raw(operand, dtype)
        if operand in self._undefined:
            self._doubt = self._doubt | self._undefined[operand]
        if dtype.kind == "b":
            return np.broadcast_to(value, (self._count,))
        value = np.asarray(value)
        if value.dtype.itemsize != dtype.itemsize:
            value = value.view(f"u{value.dtype.itemsize}").astype(f"u{dtype.itemsize}")
        return np.broadcast_to(value.view(dtype), (self._count,))

    def _leave_undefined(self, register):
        """Enter a register that nothing has written: LLVM reads it where the value has no use."""
        self._registers[register] = np.zeros((), f"u{max(8, self._kernel.bits(register)) // 8}")
        self._undefined[register] = np.ones(self._count, bool)

    def _raw(self, operand, dtype):
        if operand in self._registers:
            return self._registers[operand]
        if operand in self._places:
            return np.uint64(self._places[operand])
        if operand.startswith("0f"):
            return np.uint32(int(operand[2:], 16))
        if operand.startswith("0d"):
            return np.uint64(int(operand[2:], 16))
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+U?", operand):
            number = int(operand.rstrip("U"), 0)
            if dtype.kind == "b":
                return np.bool_(number != 0)
            return np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}")
        return self._fail(f"{operand} is read before it is written")

    def _put(self, register, value):
        """Write a register of the threads under the mask, extended to its width."""
        if register == "_":
            return
        self._check_register(register)
        value = np.asarray(value)
        bits = self._kernel.bits(register)
        if bits == 1:
            value = value.astype(bool)
        else:
            if 8 * value.dtype.itemsize != bits:
                kind = "i" if value.dtype.kind == "i" else "u"
                source = (
                    value if value.dtype.kind in "iu" else value.view(f"u{value.dtype.itemsize}")
                )
                value = source.astype(f"{kind}{bits // 8}")
            value = value.view(f"u{bits // 8}")
        before = self._undefined.get(register, self._nothing)
        if before.any() or self._doubt.any():
            self._undefined[register] = np.where(self._mask, self._doubt, before)
        if not self._mask.all():
            before = self._registers.get(register, np.zeros((), value.dtype))
            value = np.where(self._mask, value, before)
        self._registers[register] = np.broadcast_to(value, (self._count,))

    def _computed(self, function, *kinds):
        """Apply a function to all operands but the first, of the last suffix's type by default."""
        result, *sources = self._at.operands
        dtype = dtype_of(self._at.suffixes[-1])
        values = [self._get(each, dtype) for each in sources]
        self._put(result, function(*values))

    # -- arithmetic

    def _do_mul(self):
        self._product(0)

    def _do_mad(self):
        self._product(1)

    def _product(self, added):
        result, *sources = self._at.operands
        dtype, suffixes = dtype_of(self._at.suffixes[-1]), self._at.suffixes
        a, b = (self._get(each, dtype) for each in sources[:2])
        if "wide" in suffixes:
            dtype = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
            product = a.astype(dtype) * b.astype(dtype)
        else:
            product = arithmetic.UPPER(a, b) if "hi" in suffixes else a * b
        self._put(result, product + self._get(sources[2], dtype) if added else product)

    def _do_fma(self):
        self._computed(arithmetic.FMA)

    def _shift(self):
        result, source, amount = self._at.operands
        value = self._get(source, dtype_of(self._at.suffixes[-1]))
        amounts = self._get(amount, np.dtype(np.uint32))
        self._put(result, arithmetic.shift(self._at.name, value, amounts))

    _do_shl = _do_shr = _shift

    def _do_shf(self):
        """A shift of two words as one, of which it leaves the upper word (l) or the lower."""
        result, low, high, amount = self._at.operands
        lower, upper, by = (self._get(each, np.dtype(np.uint32)) for each in (low, high, amount))
        by = by.astype(np.uint64) & np.uint64(31)
        whole = (upper.astype(np.uint64) << np.uint64(32)) | lower
        moved = (whole << by) >> np.uint64(32) if self._at.suffixes[0] == "l" else whole >> by
        self._put(result, moved.astype(np.uint32))

    def _do_prmt(self):
        """The bytes of two words that four digits choose: its upper bit spreads a byte's sign."""
        result, low, high, digits = self._at.operands
        word = np.dtype(np.uint32)
        lower, upper, chosen = (self._get(each, word) for each in (low, high, digits))
        held = np.ascontiguousarray(np.stack([lower, upper], 1)).view(np.uint8)
        picked = np.zeros((self._count, 4), np.uint8)
        for place in range(4):
            digit = (chosen >> np.uint32(4 * place)) & np.uint32(15)
            byte = np.take_along_axis(held, (digit & 7).astype(np.int64)[:, None], 1)[:, 0]
            signs = np.where(byte & 128, np.uint8(255), np.uint8(0))
            picked[:, place] = np.where(digit & 8, signs, byte)
        self._put(result, picked.view(np.uint32)[:, 0])

    def _do_bfe(self):
        """A field of some bits from a first one, extended by its sign if it has one."""
        result, source, first, count = self._at.operands
        dtype = dtype_of(self._at.suffixes[-1])
        value = self._get(source, dtype)
        start, bits = (
            self._get(each, np.dtype(np.uint32)).astype(dtype) for each in (first, count)
        )
        above = dtype.type(8 * dtype.itemsize) - bits
        self._put(result, np.where(bits == 0, dtype.type(0), value << (above - start) >> above))

    def _do_setp(self):
        result, left, right, *more = self._at.operands
        order, dtype = self._at.suffixes[0], dtype_of(self._at.suffixes[-1])
        holds = arithmetic.compare(order, self._get(left, dtype), self._get(right, dtype))
        if more:
            join = arithmetic.JOINED[self._at.suffixes[1]]
            holds = join(holds, self._get(more[0], np.dtype(bool)))
        self._put(result, holds)

    def _do_selp(self):
        result, then, otherwise, predicate = self._at.operands
        dtype = dtype_of(self._at.suffixes[-1])
        chosen = self._get(predicate, np.dtype(bool))
        self._settle()
        first, doubt = self._get(then, dtype), self._doubt
        self._doubt = self._nothing
        second = self._get(otherwise, dtype)
        self._doubt = np.where(chosen, doubt, self._doubt)
        self._put(result, np.where(chosen, first, second))

    def _do_cvt(self):
        if set(self._at.suffixes) & {"bf16", "f16x2", "bf16x2"}:
            self._narrowed()
            return
        if "tf32" in self._at.suffixes:
            value = self._get(self._at.operands[1], np.dtype(np.float32))
            self._put(self._at.operands[0], arithmetic.as_tf32(value))
            return
        to, source = map(dtype_of, self._at.suffixes[-2:])
        value = self._get(self._at.operands[1], source)
        self._put(self._at.operands[0], arithmetic.convert(value, to, self._at.suffixes))

    def _narrowed(self):
        """Conversions of bfloat16, and of two floats to the halves of a word, upper one first."""
        to, source = self._at.suffixes[-2:]
        result, *operands = self._at.operands
        kind = np.dtype(np.uint16) if source == "bf16" else dtype_of(source)
        values = [self._get(each, kind) for each in operands]
        if source == "bf16":
            self._put(result, bf16(values[0]).astype(dtype_of(to)))
            return
        halves = [
            arithmetic.as_bf16(each) if to.startswith("b") else each.astype(np.float16)
            for each in values
        ]
        bits = [each.view(np.uint16).astype(np.uint32) for each in halves]
        whole = bits[0] << np.uint32(16) | bits[1] if len(bits) == 2 else bits[0]
        self._put(result, whole if len(bits) == 2 else whole.astype(np.uint16))

    def _do_cvta(self):
        self._put(self._at.operands[0], self._get(self._at.operands[1], np.dtype(np.uint64)))

    def _do_mov(self):
        result, source = self._at.operands
        dtype = dtype_of(self._at.suffixes[-1])
        if result[0] == "{":
            parts = listed(result)
            half = np.dtype(f"u{dtype.itemsize // len(parts)}")
            value = (
                np.ascontiguousarray(self._get(source, dtype)).view(half).reshape(-1, len(parts))
            )
            for number, part in enumerate(parts):
                self._put(part, value[:, number])
        elif source[0] == "{":
            parts = listed(source)
            half = np.dtype(f"u{dtype.itemsize // len(parts)}")
            joined = np.stack([self._get(each, half) for each in parts], 1)
            self._put(result, joined.view(dtype)[:, 0])
        else:
            self._put(result, self._get(source, dtype))
