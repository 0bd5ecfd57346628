"""Let one thread write each word of memory, except for elements of f16."""

from __future__ import annotations

from farrier.ir.loop import Function
from farrier.ir.types import DType
from farrier.lower.write_whole_words import written_whole


def write_whole_words_but_f16(function: Function) -> Function:
    """Prevent two threads from writing parts of one word, as `write_whole_words` does, for a device
    that can also write single elements of f16.

    before:
        @function
        def halves(a: f32[8], b: f16[8]):
            for i in block(8):
                for j in thread(1):
                    b[i] = cast(f16, a[i])
    after:
        @function
        def halves(a: f32[8], b: f16[8]):
            for i in block(8):
                for j in thread(1):
                    b[i] = cast(f16, a[i])
    """
    return written_whole(function, (DType.F16,))
