"""Kernels of PTX as functions of C, which run some blocks one after the other.

The code is cut into parts at labels, branches and barriers. One runs for all threads that are at
it, and of several the first is next; a register that several parts know is an array over the
threads of a block.
"""

from __future__ import annotations

import dataclasses

from tests.targets.cuda.c_instructions import Writer, registers_of
from tests.targets.cuda.ptx import Instruction

ADDRESS, BARRIER, WARP = 1, 2, 3  # Faults: a function returns one + 4 * the instruction's number.
_OF_WARPS = ("mma", "ldmatrix", "shfl")
_THREADS = {"warps": "LANES", "warpgroups": "GROUP_THREADS"}  # Their number, in C.
_NO_RESULT = ("st", "bra", "ret", "exit", "bar", "barrier", "cp", "fence", "mbarrier", "wgmma")
_JUMPS = ("bra", "ret", "exit")
_WAITS = 1 << 30  # Added to the place of a thread at a barrier.

_FUNCTION = """
int {symbol}(const struct array *arrays, u64 count, const u64 *arguments, u32 first, u32 last) {{
    enum {{ T = {threads}, SHARED = {shared}, LOCAL = {local}, WAITS = {waits}, END = {end} }};
    _Alignas(16) u8 nowhere[16], shared[SHARED + 16], own[T * LOCAL + 16];
    int fault = 0;
    u32 at[T];
    {arrays}
    for (u32 block = first; block < last; block++) {{
        memset(at, 0, sizeof at);
        for (;;) {{
            u32 next = WAITS, waiting = 0;
            for (u32 t = 0; t < T; t++) next = at[t] < next ? at[t] : next;
            switch (next) {{
            {parts}
            default:
                for (u32 t = 0; t < T; t++) waiting += at[t] > WAITS;
                for (u32 t = 0; t < T && waiting; t++) {{
                    if (at[t] == END) continue;
                    if (waiting < T) return 4 * (at[t] - WAITS) + {barrier};
                    at[t] -= WAITS - 1;
                }}
                if (!waiting) goto done;
            }}
            if (fault) return fault;
        }}
    done:;
    }}
    return 0;
}}
"""


@dataclasses.dataclass
class _Part:
    """Instructions that follow each other: of threads, of warps, of warpgroups, or a barrier.
    `enters` are the registers that are read before they are written there."""

    kind: str
    first: int
    code: list[Instruction] = dataclasses.field(default_factory=list)
    enters: dict[str, None] = dataclasses.field(default_factory=dict)
    writes: dict[str, None] = dataclasses.field(default_factory=dict)

    def add(self, instruction):
        self.code.append(instruction)
        operands = instruction.operands
        results = registers_of(operands[:1]) if _has_result(instruction) else ()
        adds = instruction.name == "wgmma"
        sources = registers_of(operands[1:] if results and not adds else operands)
        if instruction.guard is not None:
            sources = [instruction.guard[0], *sources, *results]
        self.enters |= dict.fromkeys(each for each in sources if each not in self.writes)
        self.writes |= dict.fromkeys(results)

    @property
    def end(self):
        return self.first + len(self.code)

    @property
    def known(self):
        return self.enters.keys() | self.writes.keys()


def function_of(kernel, symbol):
    """Return the function of a kernel as text."""
    parts = _parts(kernel)
    uses = [each for part in parts for each in part.known]
    kept = {each for each in set(uses) if uses.count(each) > 1}
    for part in parts:
        kept |= part.known if part.kind in _THREADS else part.enters.keys()
    arrays = [f"u{max(8, kernel.bits(each))} R_{each[1:]}[T];" for each in sorted(kept)]
    return _FUNCTION.format(
        symbol=symbol,
        threads=kernel.most_threads,
        shared=kernel.shared_bytes,
        local=-(-kernel.local_bytes // 16) * 16,
        waits=_WAITS,
        end=len(kernel.code),
        arrays="\n    ".join(arrays),
        parts="\n".join(_case(part, kernel, kept) for part in parts),
        barrier=BARRIER,
    )


def _has_result(instruction):
    later = {"mma_async", "try_wait"} & set(instruction.suffixes)
    return instruction.name not in _NO_RESULT or bool(later)


def _parts(kernel):
    starts, parts = set(kernel.labels.values()), []
    for number, instruction in enumerate(kernel.code):
        kind = _kind(instruction)
        part = parts[-1] if parts else None
        if part is None or number in starts or part.kind != kind or kind == "barrier":
            parts.append(_Part(kind, number))
        parts[-1].add(instruction)
        if instruction.name in _JUMPS:
            starts.add(number + 1)
    return parts


def _kind(instruction):
    if instruction.name in _OF_WARPS:
        return "warps"
    if "mma_async" in instruction.suffixes:
        return "warpgroups"
    return "barrier" if instruction.name in ("bar", "barrier") else "threads"


def _case(part, kernel, kept):
    first = part.first
    if part.kind == "barrier":
        return f"""case {first}:
    for (u32 t = 0; t < T; t++)
        if (at[t] == {first}) at[t] += WAITS;
    break;"""
    together = part.kind in _THREADS
    return _of_many(part, kernel) if together else _of_threads(part, kernel, kept)


def _of_threads(part, kernel, kept):
    writer = Writer(kernel, part.first)
    body = [f"u32 next_ = {part.end};", "u8 carry = 0;"]
    for each in sorted(part.known):
        value = f" = R_{each[1:]}[t]" if each in part.enters else ""
        body.append(f"u{max(8, kernel.bits(each))} {each[1:]}{value};")
    body += [line for instruction in part.code for line in writer.lines(instruction)]
    body += [f"R_{each[1:]}[t] = {each[1:]};" for each in sorted(part.writes.keys() & kept)]
    body.append("at[t] = next_;")
    lines = "\n        ".join(body)
    return f"""case {part.first}:
    for (u32 t = 0; t < T; t++) {{
        if (at[t] != {part.first}) continue;
        {lines}
    }}
    break;"""


def _of_many(part, kernel):
    count = _THREADS[part.kind]
    writer = Writer(kernel, part.first, are_arrays=True)
    lines = [line for instruction in part.code for line in writer.lines(instruction)]
    body = "\n        ".join(lines)
    return f"""case {part.first}:
    for (u32 w = 0; w < T; w += {count}) {{
        u32 here = 0;
        for (u32 t = w; t < w + {count} && t < T; t++) here += at[t] == {part.first};
        if (!here) continue;
        if (here < {count}) return {4 * part.first + WARP};
        {body}
        for (u32 t = w; t < w + {count}; t++) at[t] = {part.end};
    }}
    break;"""
