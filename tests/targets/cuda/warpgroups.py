"""Products of warpgroups, which go on while their threads do: `wgmma`.

A product reads its factors and its sums when it is waited for, and is checked for what it may not
read yet when it begins. Positions of elements and matrix descriptors are those of the PTX ISA,
section "Asynchronous warpgroup level matrix instructions", for the swizzle of 128 bytes.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from tests.targets.cuda import tensor_cores
from tests.targets.cuda.ptx import listed
from tests.targets.cuda.shadow import Who

GROUP = 128  # Threads.
ROWS = 64
ROW_BYTES = 128
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_WIDE = np.dtype(np.uint64)
_OF_PRODUCTS = -3  # The thread that reads factors, which is none of a block.
_FENCED, _PUBLISHED = -2, -1
_THREAD = np.arange(GROUP)


@dataclasses.dataclass
class _Product:
    """A product under way: the threads that began it, the names of their sums, the descriptors of
    both factors, and the groups of products and barriers before it."""

    instruction: object
    place: int
    threads: np.ndarray
    sums: list
    descriptors: list
    group: np.ndarray
    time: int


class Warpgroups:
    """The instructions of whole warpgroups."""

    def _begin_products(self):
        self._under_way = []
        self._closed = np.zeros(self._count, np.int64)
        self._gathered = np.full(self._count, -1)  # The place where a thread is held.
        self._adding = {}  # The number of products that add to a register of each thread.
        self._unordered = set()  # Registers that were touched since the last fence.
        # The thread that stored each byte of shared memory, until products may read it.
        self._storing = np.full(len(self._shared.content), _PUBLISHED, np.int32)

    def _gather(self):
        """Hold threads at a product until all of their warpgroup are there. Leave those whose
        warpgroups are complete under the mask, and return whether there are any."""
        if self._threads % GROUP:
            self._fail(f"blocks of {self._threads} threads are no whole warpgroups")
        self._gathered[self._mask] = self._place
        here = self._gathered == self._place
        whole = np.repeat(here.reshape(-1, GROUP).all(1), GROUP)
        self._gathered[whole] = -1
        self._mask = whole
        return whole.any()

    def _check_register(self, register):
        """Fail if a product under way adds to a register of a thread under the mask."""
        if register in self._adding and np.any(self._adding[register][self._mask]):
            self._fail(f"no wait for the product that adds to {register}")
        self._unordered.add(register)

    def _do_fence(self):
        if "mbarrier_init" in self._at.suffixes:
            self._fence_barriers()
            return
        if not {"proxy", "async"} <= set(self._at.suffixes):
            self._fail("a fence that the emulator does not have")
        stored = self._storing >= 0
        self._storing[stored & self._mask[np.where(stored, self._storing, 0)]] = _FENCED

    def _meet_products(self):
        """Let products read what threads have fenced before a barrier of the block."""
        self._storing[self._storing == _FENCED] = _PUBLISHED

    def _do_wgmma(self):
        self._check_warps()
        match self._at.suffixes[0]:
            case "fence":
                self._unordered.clear()
            case "commit_group":
                self._closed[self._mask] += 1
            case "wait_group":
                self._wait_for_products(int(self._at.operands[0]))
            case "mma_async":
                self._begin_product()
            case _:
                self._fail("an opcode that the emulator does not have")

    def _begin_product(self):
        results, *descriptors = self._at.operands[:3]
        sums = listed(results)
        if touched := self._unordered & set(sums):
            self._fail(f"no wgmma.fence orders {min(touched)} before the product")
        values = [self._get(each, _WIDE) for each in descriptors]
        self._settle()
        product = _Product(
            *(self._at, self._place, self._mask.copy(), sums, values),
            *(self._closed.copy(), self._history.time),
        )
        self._factors(product, product.threads)
        for each in sums:
            self._adding.setdefault(each, np.zeros(self._count, np.int64))[self._mask] += 1
        self._under_way.append(product)

    def _wait_for_products(self, most):
        left = []
        for product in self._under_way:
            ends = self._mask & product.threads & (product.group < self._closed - most)
            if ends.any():
                self._history.needed.add(self._place)
                self._add(product, ends)
            if np.any(product.threads & ~ends):
                left.append(dataclasses.replace(product, threads=product.threads & ~ends))
        self._under_way = left

    def _add(self, product, ends):
        """Add the products of some threads to their sums."""
        a, b = self._factors(product, ends)
        new = a @ b.transpose(0, 2, 1)
        lanes, warps = _THREAD % 32, _THREAD // 32
        total = np.dtype(np.int32 if product.instruction.suffixes[4] == "s32" else np.float32)
        for number, name in enumerate(product.sums):
            row = 16 * warps + lanes // 4 + 8 * (number // 2 % 2)
            column = 8 * (number // 4) + 2 * (lanes % 4) + number % 2
            value = np.array(np.broadcast_to(self._registers[name], (self._count,)))
            old = value.view(total)
            old[ends] += new[:, row, column].reshape(-1).astype(total)
            self._registers[name] = value
            self._adding[name][ends] -= 1

    def _factors(self, product, threads):
        """Return both factors of the warpgroups of some threads, each [warpgroups, rows, terms]."""
        suffixes = product.instruction.suffixes
        columns, depth = map(int, _SHAPE.fullmatch(suffixes[3]).groups())
        options = product.instruction.operands[3:]
        across = [each == "1" for each in options[3:5]] or [False, False]
        assert options[:3] in (("1",), ("1", "1", "1"))
        groups = np.flatnonzero(threads.reshape(-1, GROUP).all(1))
        return [
            self._factor(product, groups, descriptor, rows, depth, kind, is_across)
            for descriptor, rows, kind, is_across in zip(
                product.descriptors, (ROWS, columns), suffixes[5:7], across, strict=True
            )
        ]

    def _factor(self, product, groups, descriptor, rows, depth, kind, is_across):
        of_groups = descriptor.reshape(-1, GROUP)[groups]
        if np.any(of_groups != of_groups[:, :1]):
            self._fail("threads of a warpgroup have several matrix descriptors")
        own = of_groups[:, 0].astype(object)
        start, leading, stride = (
            np.array([(int(each) >> shift & 0x3FFF) << 4 for each in own]) for shift in (0, 16, 32)
        )
        if any(int(each) >> 62 != 1 or int(each) >> 49 & 7 for each in own):
            self._fail("a matrix descriptor whose mode the emulator does not have")
        size = 1 if kind in ("s8", "u8") else 2
        row, term = np.arange(rows)[None, :, None], np.arange(depth)[None, None, :]
        first, leading, stride = (each[:, None, None] for each in (start, leading, stride))
        if is_across:
            column, within = np.divmod(row * size, ROW_BYTES)
            at = first + column * leading + term // 8 * stride + term % 8 * ROW_BYTES + within
        else:
            at = first + row // 8 * stride + row % 8 * ROW_BYTES + term * size
            if np.any(first % ROW_BYTES + term * size >= ROW_BYTES):
                self._fail("a product reads beyond a row of its factor")
        at = at ^ (at >> 7 & 7) << 4
        if np.any(at + size > self._shared_bytes):
            self._fail(f"an address is outside of the {self._shared_bytes} bytes of its array")
        blocks = self._block[groups * GROUP]
        places = (at + blocks[:, None, None] * self._shared_step).reshape(-1)
        self._check_factor(product, places, size, groups)
        words = self._shared.content.view(f"u{size}")[places // size].reshape(at.shape)
        if kind in ("s8", "u8"):
            return words.view(np.int8 if kind == "s8" else np.uint8).astype(np.int32)
        if kind == "bf16":
            return tensor_cores.bf16(words)
        return words.view(np.float16).astype(np.float32)

    def _check_factor(self, product, places, size, groups):
        if not np.all(self._shared.written[places]):
            self._fail("a product depends on memory that nobody has written")
        if np.any(self._storing[places] != _PUBLISHED):
            self._fail("a product reads what no fence.proxy.async has published")
        each = len(places) // len(groups)
        numbers = np.repeat(self._number[groups * GROUP], each)
        reader = np.full(len(places), _OF_PRODUCTS, np.int32)
        who = Who(reader, numbers, self._history.time, product.place)
        other = self._shared_shadow.touch(places, size, False, who, product.time)
        if other is not None:
            text = self._kernel.code[other].text
            self._fail(f"threads race, with no barrier after {text!r} and before")
