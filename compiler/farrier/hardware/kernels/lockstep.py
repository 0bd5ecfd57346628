"""The comparison of a kernel's hardware, simulated by Verilator, with the interpreter of loop
functions on the same data."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.errors import UsageError
from farrier.hardware.kernels.banks import Bank
from farrier.hardware.kernels.kernel import TOP, Kernel
from farrier.hardware.kernels.pipeline import banks_of
from farrier.ir.run_loops import run_loops
from farrier.targets.dae.rtl.lockstep import build_verilator, require_verilator

_SPARE = 1000  # Cycles beyond the predicted ones, after which a run is given up.
_NOISE = 0xA5A5A5A5A5A5A5A5


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """The result of running a kernel in both ways: the number of cycles that was `predicted`, the
    number that Verilator counted (`seen`), and for each argument the number of elements that differ
    from the interpreter's."""

    predicted: int
    seen: int
    differing: Mapping[str, int]

    @property
    def agrees(self) -> bool:
        return self.predicted == self.seen and not any(self.differing.values())


class KernelHardware:
    """A kernel compiled by Verilator to an executable, in a folder."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        """Generate the kernel's Verilog and compile it in `folder`. Raises UsageError if a tool is
        missing or fails."""
        self._kernel, self._folder = kernel, folder
        require_verilator()
        files = {f"{TOP}.v": kernel.verilog(), "harness.cpp": _harness(*banks_of(kernel.pipelines))}
        build_verilator(files, TOP, folder)

    def run(self, arguments: Mapping[str, npt.NDArray[Any]]) -> Comparison:
        """Run the kernel in Verilator and in the interpreter, on the arrays `arguments` (by name),
        and compare the results. Raises UsageError if the hardware does not finish within the
        predicted number of cycles plus a margin."""
        params = self._kernel.function.params
        for each in params:
            packed = each.element_layout.pack(arguments[each.name].reshape(each.type.static_shape))
            (self._folder / f"{each.name}.bin").write_bytes(packed.astype(np.int64).tobytes())
        most = self._kernel.cycles + _SPARE
        command = [str(self._folder / "obj_dir" / TOP), str(self._folder), str(most)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"the hardware did not end in {most} cycles: {done.stderr.strip()}")
        results = run_loops(self._kernel.function, {}, initial=arguments)
        differing = {}
        for each in params:
            raw = np.frombuffer((self._folder / f"{each.name}.bin").read_bytes(), np.int64)
            shape = each.type.static_shape
            packed = raw.reshape(each.element_layout.physical_shape(shape))
            got = each.element_layout.unpack(packed.astype(each.dtype.numpy), shape)
            differing[each.name] = int((got != results[each.name]).sum())
        return Comparison(self._kernel.cycles, int(done.stdout), differing)

    def check(self, seed: int = 0) -> Comparison:
        """Run the kernel as `run` does, on random arguments."""
        rng = np.random.default_rng(seed)
        arguments = {}
        for each in self._kernel.function.params:
            shape, dtype = each.type.static_shape, each.dtype.numpy
            if each.dtype.is_integer:
                limits = np.iinfo(dtype)
                values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            else:
                values = rng.integers(0, 2, shape).astype(dtype)
            arguments[each.name] = values
        return self.run(arguments)


def _harness(read: Sequence[Bank], written: Sequence[Bank]) -> str:
    """Return a C++ program that runs the kernel in Verilator and prints its number of cycles. The
    program reads the content of each argument's memory from a file, and writes it back at the end.
    If an element is read and written in the same cycle, the read returns noise, since real memories
    differ in this case."""
    asks, reads, writes = [], [], []
    for bank in (bank for bank in read if bank.is_argument):
        n, mask = bank.name, (1 << bank.dtype.bits) - 1
        asks.append(
            f"const bool r_{n} = k.{n}_read_enable; const auto ra_{n} = k.{n}_read_address;"
        )
        word = f"(uint64_t){n}.at(ra_{n})"
        if bank in written:
            word = f"(w_{n} && ra_{n} == wa_{n} ? {_NOISE}ull : {word})"
        reads.append(f"if (r_{n}) k.{n}_read_data = {word} & {mask}ull;")
    for bank in (bank for bank in written if bank.is_argument):
        n, bits = bank.name, bank.dtype.bits
        asks.append(
            f"const bool w_{n} = k.{n}_write_enable; const auto wa_{n} = k.{n}_write_address; "
            f"const uint64_t wd_{n} = (uint64_t)k.{n}_write_data << {64 - bits};"
        )
        kind = "int64_t" if bank.dtype.is_signed else "uint64_t"
        writes.append(f"if (w_{n}) {n}.at(wa_{n}) = ({kind})wd_{n} >> {64 - bits};")
    names = [bank.name for bank in dict.fromkeys((*read, *written)) if bank.is_argument]
    return _HARNESS.format(
        loads="\n    ".join(f'auto {n} = load(folder + "/{n}.bin");' for n in names),
        ticks="\n        ".join([*asks, "k.clk = 1; k.eval();", *reads, *writes, "k.eval();"]),
        saves="\n    ".join(f'save(folder + "/{n}.bin", {n});' for n in names),
    )


_HARNESS = """#include "Vkernel.h"
#include "verilated.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static std::vector<int64_t> load(const std::string &path) {{
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) {{ perror(path.c_str()); exit(2); }}
    std::vector<int64_t> words;
    for (int64_t word; fread(&word, 8, 1, file) == 1;) words.push_back(word);
    fclose(file);
    return words;
}}

static void save(const std::string &path, const std::vector<int64_t> &words) {{
    FILE *file = fopen(path.c_str(), "wb");
    if (!file || fwrite(words.data(), 8, words.size(), file) != words.size()) exit(2);
    fclose(file);
}}

int main(int, char **argv) {{
    const std::string folder = argv[1];
    const uint64_t most = strtoull(argv[2], nullptr, 10);
    {loads}
    Vkernel k;
    uint64_t cycles = 0;
    auto tick = [&] {{
        k.clk = 0; k.eval();
        cycles += k.busy;
        {ticks}
    }};
    k.rst = 1; tick(); tick(); k.rst = 0;
    cycles = 0;
    k.start = 1; tick(); k.start = 0;
    do {{ tick(); if (cycles > most) return 1; }} while (k.busy);
    {saves}
    printf("%llu\\n", (unsigned long long)cycles);
}}
"""
