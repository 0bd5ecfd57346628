"""A task that runs on any device: kernels that double, right and wrong, and what they are given."""

from __future__ import annotations

import array
import functools
import random
from collections.abc import Callable
from pathlib import Path

from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.measurement import Argument, Candidate, Launch, Role

COUNT = 1009  # The elements of a test array; a prime.


@functools.cache
def linked_kernels() -> bytes:
    """The linked library of `kernels.ll`, with the real support code."""
    target = host()
    files = ("kernels.ll", f"kernels_{target.arch}.ll")
    text = "\n".join((Path(__file__).parent / name).read_text() for name in files)
    return link([compile_text(text, target), support_object(target)])


class Doubling:
    """A task: y = 2x over f32[COUNT], its blobs, and candidates for it."""

    def __init__(self, put: Callable[[bytes], str], seed: int) -> None:
        """`put` stores a blob and returns its digest."""
        x = array.array("f", (random.Random(seed).uniform(-4, 4) for _ in range(COUNT)))
        self.x, self.y = x.tobytes(), array.array("f", (2 * value for value in x)).tobytes()
        self.input, self.output = put(self.x), put(self.y)

    def candidate(
        self, symbol: str, *, cold: bool = False, prepare: str | None = None
    ) -> Candidate:
        nbytes = 4 * COUNT
        args = (
            Argument(Role.INPUT, nbytes, blob=self.input, cold=cold),
            Argument(Role.OUTPUT, nbytes, expected=self.output),
            Argument(Role.SCRATCH, nbytes),
        )
        return Candidate((Launch(symbol),), args, (Launch(prepare),) if prepare else ())
