"""The matrix unit: all products of a step in one cycle, and an adder tree for each column."""

from __future__ import annotations

from typing import Any

from amaranth import ClockSignal, Elaboratable, Instance, Signal, Value, signed
from amaranth import Module as Design

from farrier.targets.dae.description import Accelerator
from farrier.targets.dae.rtl.pipeline import Pipeline


class Matrix(Elaboratable):
    """The matrix unit. `totals` are the products of an input element and a weight element,
    `registers` cycles after these were applied; cycles in which `enable` is low do not count."""

    def __init__(self, accelerator: Accelerator, registers: int) -> None:
        self._matrix = accelerator.matrix
        self._registers = registers
        self.enable = Signal()
        self.inputs = Signal(8 * accelerator.input_bytes)
        self.weights = Signal(8 * accelerator.weight_bytes)
        self.totals = [Signal(signed(32), name=f"total{n}") for n in range(self._matrix.outer)]

    def elaborate(self, platform: Any) -> Design:
        m = Design()
        inner, outer = self._matrix.inner, self._matrix.outer
        levels = (inner - 1).bit_length()
        pipe = Pipeline(m, 2 + levels, self._registers)
        # The last register of the factors and the first one of the products lie in the multipliers.
        factors = pipe.take()
        read = pipe.end(inputs=self.inputs, weights=self.weights)
        results = pipe.take()
        terms: dict[str, Value] = {}
        for row in range(outer):
            for column in range(inner):
                product = Signal(signed(16), name=f"product{row}_{column}")
                m.submodules[f"multiplier{row}_{column}"] = Instance(
                    "product",
                    p_FACTORS=factors,
                    p_RESULT=results,
                    i_clk=ClockSignal(),
                    i_enable=self.enable,
                    i_left=read["inputs"].word_select(column, 8),
                    i_right=read["weights"].word_select(row * inner + column, 8),
                    o_result=product,
                )
                terms[f"t{row}_{column}"] = product
        behind, count = pipe.end(**terms), inner
        for _ in range(levels):
            terms = {}
            for row in range(outer):
                for at in range(0, count, 2):
                    term = behind[f"t{row}_{at}"]
                    if at + 1 < count:
                        term = term + behind[f"t{row}_{at + 1}"]
                    terms[f"t{row}_{at // 2}"] = term
            behind, count = pipe.end(**terms), -(-count // 2)
        m.d.comb += [total.eq(behind[f"t{n}_0"]) for n, total in enumerate(self.totals)]
        return m
