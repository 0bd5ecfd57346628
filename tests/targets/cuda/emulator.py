"""Runs PTX with no GPU, in numpy: a register is an array over the threads of some blocks.

Threads that are at the same instruction run it together; of several places in the code the first
is next, so that threads which a branch has parted meet again behind it. An unknown instruction, an
address outside of every array or misaligned, a value that depends on shared memory which nobody
wrote, and a barrier that not all threads of a block reach are each a PtxError that names the kernel
and the instruction.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np

from tests.targets.cuda import arithmetic
from tests.targets.cuda.ptx import PtxError

_AT_ONCE = 1 << 14  # Threads: enough that the cost of a call of numpy does not show.
_PLACE = 40  # Bits of an offset in an array of global memory; the others are its number.
_KINDS = {"b": "u", "u": "u", "s": "i", "f": "f"}
_ADDRESS = re.compile(r"\[([%\w$.]+)(?:\+(-?\d+))?\]")


class Memory:
    """The arrays of a device, by their addresses."""

    def __init__(self):
        self.arrays = {}
        self._count = 0

    def allocate(self, nbytes):
        self._count += 1
        self.arrays[self._count] = np.full(-(-nbytes // 16) * 16, 0xA5, np.uint8)
        return self._count << _PLACE

    def free(self, address):
        del self.arrays[address >> _PLACE]

    def bytes_at(self, address, nbytes):
        """Return a view of some bytes. Raises PtxError for those outside of an array."""
        array, start = self.arrays.get(address >> _PLACE), address & ((1 << _PLACE) - 1)
        if array is None or start + nbytes > len(array):
            raise PtxError(f"a copy of {nbytes} bytes at {address:#x} is outside of all arrays")
        return array[start : start + nbytes]


def launch(kernel, blocks, threads, arguments, memory):
    """Run a kernel. Raises PtxError."""
    if threads > kernel.most_threads:
        raise PtxError(f"{kernel.name} takes {kernel.most_threads} threads, and not {threads}")
    at_once = max(1, _AT_ONCE // threads)
    with np.errstate(all="ignore"):
        for first in range(0, blocks, at_once):
            numbers = np.arange(first, min(blocks, first + at_once), dtype=np.uint32)
            _Run(kernel, numbers, threads, arguments, memory).run()


def _dtype(suffix):
    return (
        np.dtype(bool)
        if suffix == "pred"
        else np.dtype(f"{_KINDS[suffix[0]]}{int(suffix[1:]) // 8}")
    )


class _Run:
    """Some blocks. `_mask` are the threads that run the instruction at hand."""

    def __init__(self, kernel, numbers, threads, arguments, memory):
        self._kernel, self._arguments, self._memory = kernel, arguments, memory
        self._count = len(numbers) * threads
        self._block = np.repeat(np.arange(len(numbers)), threads)
        self._blocks, self._threads = len(numbers), threads
        self._registers = {
            "%tid.x": np.tile(np.arange(threads, dtype=np.uint32), len(numbers)),
            "%ctaid.x": np.repeat(numbers, threads),
            "%ntid.x": np.full(self._count, threads, np.uint32),
        }
        self._shared = np.zeros((len(numbers), kernel.shared_bytes + 16), np.uint8)
        self._written = np.zeros(self._shared.shape, bool)
        self._local = np.zeros((self._count, kernel.local_bytes + 16), np.uint8)
        # LLVM may move a load of shared memory to before the condition that guards it. Registers
        # are marked that hold bytes which nobody wrote: to depend on them is the fault.
        self._nothing = np.zeros(self._count, bool)
        self._undefined = {}
        self._doubt = self._nothing  # The threads whose operands so far are undefined.
        self._mask = np.ones(self._count, bool)
        self._at = kernel.code[0]

    def _fail(self, what) -> NoReturn:
        raise PtxError(f"kernel {self._kernel.name}: {what}: {self._at.text}")

    # -- control

    def run(self):
        code, end = self._kernel.code, len(self._kernel.code)
        places = np.zeros(self._count, np.int64)
        waiting = np.zeros(self._count, bool)
        while True:
            running = (places < end) & ~waiting
            if not running.any():
                if not waiting.any():
                    return
                self._meet(waiting, places >= end)
                waiting[:] = False
                continue
            place = int(places[running].min())
            self._at, here = code[place], running & (places == place)
            self._mask = here & self._guard(here)
            places[here] = place + 1
            match self._at.name:
                case "bra":
                    places[self._mask] = self._kernel.labels[self._at.operands[0]]
                case "ret" | "exit":
                    places[self._mask] = end
                case "bar" | "barrier":
                    waiting |= self._mask
                case _ if self._mask.any():
                    self._step()

    def _guard(self, here):
        if self._at.guard is None:
            return True
        register, is_negated = self._at.guard
        holds = self._get(register, np.dtype(bool)) ^ is_negated
        self._mask = here
        self._settle()
        return holds

    def _settle(self):
        """Fail if the operands so far are undefined in a thread under the mask; forget them."""
        if np.any(self._doubt & self._mask):
            self._fail("a value depends on shared memory that nobody has written")
        self._doubt = self._nothing

    def _meet(self, waiting, ended):
        """Let the threads at a barrier go on."""
        arrived = np.bincount(self._block[waiting], minlength=self._blocks)
        if np.any((arrived > 0) & (arrived < self._threads)) or np.any(
            ended & (arrived[self._block] > 0)
        ):
            self._fail("not all threads of a block reach the barrier")

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
        value = self._raw(operand, dtype)
        if operand in self._undefined:
            self._doubt = self._doubt | self._undefined[operand]
        if dtype.kind == "b":
            return np.broadcast_to(value, (self._count,))
        value = np.asarray(value)
        if value.dtype.itemsize != dtype.itemsize:
            value = value.view(f"u{value.dtype.itemsize}").astype(f"u{dtype.itemsize}")
        return np.broadcast_to(value.view(dtype), (self._count,))

    def _raw(self, operand, dtype):
        if operand in self._registers:
            return self._registers[operand]
        if operand in self._kernel.places:
            return np.uint64(self._kernel.places[operand])
        if operand.startswith("0f"):
            return np.uint32(int(operand[2:], 16))
        if operand.startswith("0d"):
            return np.uint64(int(operand[2:], 16))
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", operand):
            number = int(operand, 0)
            if dtype.kind == "b":
                return np.bool_(number != 0)
            return np.array(number % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}")
        return self._fail(f"{operand} is read before it is written")

    def _put(self, register, value):
        """Write a register of the threads under the mask, extended to its width."""
        if register == "_":
            return
        value = np.asarray(value)
        bits = self._kernel.widths[re.match(r"%[a-zA-Z]+", register)[0]]
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
        dtype = _dtype(self._at.suffixes[-1])
        values = [self._get(each, dtype) for each in sources]
        self._put(result, function(*values))

    # -- arithmetic

    def _do_mul(self):
        self._product(0)

    def _do_mad(self):
        self._product(1)

    def _product(self, added):
        result, *sources = self._at.operands
        dtype, suffixes = _dtype(self._at.suffixes[-1]), self._at.suffixes
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
        value = self._get(source, _dtype(self._at.suffixes[-1]))
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

    def _do_bfe(self):
        """A field of some bits from a first one."""
        result, source, first, count = self._at.operands
        dtype = _dtype(self._at.suffixes[-1])
        if dtype.kind != "u":
            self._fail("a signed field, which the emulator does not have")
        value = self._get(source, dtype)
        start, bits = (
            self._get(each, np.dtype(np.uint32)).astype(dtype) for each in (first, count)
        )
        unit = dtype.type(1)
        self._put(result, (value >> start) & ((unit << bits) - unit))

    def _do_setp(self):
        result, left, right, *more = self._at.operands
        order, dtype = self._at.suffixes[0], _dtype(self._at.suffixes[-1])
        holds = arithmetic.compare(order, self._get(left, dtype), self._get(right, dtype))
        if more:
            join = arithmetic.JOINED[self._at.suffixes[1]]
            holds = join(holds, self._get(more[0], np.dtype(bool)))
        self._put(result, holds)

    def _do_selp(self):
        result, then, otherwise, predicate = self._at.operands
        dtype = _dtype(self._at.suffixes[-1])
        chosen = self._get(predicate, np.dtype(bool))
        self._settle()
        first, doubt = self._get(then, dtype), self._doubt
        self._doubt = self._nothing
        second = self._get(otherwise, dtype)
        self._doubt = np.where(chosen, doubt, self._doubt)
        self._put(result, np.where(chosen, first, second))

    def _do_cvt(self):
        to, source = map(_dtype, self._at.suffixes[-2:])
        value = self._get(self._at.operands[1], source)
        self._put(self._at.operands[0], arithmetic.convert(value, to, self._at.suffixes))

    def _do_cvta(self):
        self._put(self._at.operands[0], self._get(self._at.operands[1], np.dtype(np.uint64)))

    def _do_mov(self):
        result, source = self._at.operands
        dtype = _dtype(self._at.suffixes[-1])
        if result[0] == "{":
            parts = _listed(result)
            half = np.dtype(f"u{dtype.itemsize // len(parts)}")
            value = (
                np.ascontiguousarray(self._get(source, dtype)).view(half).reshape(-1, len(parts))
            )
            for number, part in enumerate(parts):
                self._put(part, value[:, number])
        elif source[0] == "{":
            parts = _listed(source)
            half = np.dtype(f"u{dtype.itemsize // len(parts)}")
            joined = np.stack([self._get(each, half) for each in parts], 1)
            self._put(result, joined.view(dtype)[:, 0])
        else:
            self._put(result, self._get(source, dtype))

    # -- memory

    def _do_ld(self):
        results, place = self._at.operands
        if self._at.suffixes[0] == "param":
            name = _ADDRESS.fullmatch(place)[1]
            value = self._arguments[self._kernel.params.index(name)]
            self._put(results, np.full(self._count, value, np.uint64))
            return
        dtype = _dtype(self._at.suffixes[-1])
        names = _listed(results)
        for number, name in enumerate(names):
            self._doubt = self._nothing
            self._put(name, self._read(place, dtype, number, len(names)))

    def _do_st(self):
        place, sources = self._at.operands
        dtype = _dtype(self._at.suffixes[-1])
        names = _listed(sources)
        for number, name in enumerate(names):
            value = np.ascontiguousarray(self._get(name, dtype))[self._mask]
            if self._at.suffixes[0] == "global":
                self._settle()
            doubt, self._doubt = self._doubt[self._mask], self._nothing
            for array, at, chosen in self._parts(place, dtype, number, len(names)):
                if array is self._shared:
                    places = at[:, None] + np.arange(dtype.itemsize)
                    self._written.reshape(-1)[places] = ~doubt[:, None]
                array.reshape(-1).view(dtype)[at // dtype.itemsize] = value[chosen]

    def _read(self, place, dtype, number, count):
        value = np.zeros(self._count, dtype)
        here = np.flatnonzero(self._mask)
        for array, at, chosen in self._parts(place, dtype, number, count):
            if array is self._shared and not (are_written := self._written.reshape(-1)[at]).all():
                self._doubt = self._doubt.copy()
                self._doubt[here[chosen]] = ~are_written
            value[here[chosen]] = array.reshape(-1).view(dtype)[at // dtype.itemsize]
        return value

    def _parts(self, place, dtype, number, count):
        """Yield the arrays that an access touches, with the offsets in each, and which of the
        threads under the mask these are."""
        base, offset = _ADDRESS.fullmatch(place).groups()
        address = self._get(base, np.dtype(np.uint64)).astype(np.int64)[self._mask] + int(
            offset or 0
        )
        self._settle()
        if np.any(address % (dtype.itemsize * count)):
            self._fail(f"an address is no multiple of {dtype.itemsize * count}")
        address = address + number * dtype.itemsize
        everyone = np.ones(len(address), bool)
        if self._at.suffixes[0] in ("shared", "local"):
            is_shared = self._at.suffixes[0] == "shared"
            array = self._shared if is_shared else self._local
            rows = self._block if is_shared else np.arange(self._count)
            self._check(address, dtype, array.shape[1] - 16)
            yield array, rows[self._mask] * array.shape[1] + address, everyone
            return
        numbers = address >> _PLACE
        for each in np.unique(numbers):
            array = self._memory.arrays.get(int(each))
            if array is None:
                self._fail("an address is in no array")
            chosen = numbers == each
            at = address[chosen] & ((1 << _PLACE) - 1)
            self._check(at, dtype, len(array))
            yield array, at, chosen

    def _check(self, at, dtype, nbytes):
        if np.any(at < 0) or np.any(at + dtype.itemsize > nbytes):
            self._fail(f"an address is outside of the {nbytes} bytes of its array")


def _listed(operand):
    return re.findall(r"[%\w.]+", operand) if operand[0] == "{" else [operand]
