"""PTX as text to instructions: the part of the language that LLVM writes."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from farrier_device.cuda_library import shared_bytes as of_launches

_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$.]+)\[(\d+)\];")
_EXTERN = re.compile(r"\.extern\s+\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$.]+)\[\];")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$.]+)\[(\d+)\];")
_CONSTANT = re.compile(r"\.global\s+\.align\s+\d+\s+\.b8\s+([\w$.]+)\[\d+\]\s*=\s*\{([^}]*)\};")
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*\((.*?)\)(.*?)\n\{(.*?)\n\}", re.DOTALL)
_REGISTERS = re.compile(r"\.reg\s+\.(pred|[bsuf]\d+)\s+(.*)")
_PREFIX = re.compile(r"%[a-zA-Z]+")
_WORD = re.compile(r"(?<![\w%.$])%?[a-zA-Z_$][\w$]*")
_NAMES = re.compile(r"%?[a-zA-Z_$][\w$.]*")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


_KINDS = {"b": "u", "u": "u", "s": "i", "f": "f"}


class PtxError(Exception):
    """A module that the emulator cannot run, or a fault of a kernel."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    """`guard` is the predicate that the instruction depends on, and whether it is negated."""

    text: str
    name: str
    suffixes: tuple[str, ...]
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An entry point. `widths` are the bits of registers by their names, or by the beginning of
    numbered names; the parameters `maps` are tensor maps. The `places` of arrays are offsets in the
    shared memory of a block or the memory of a thread. Of the `shared_bytes` of a block, the launch
    sets the last `launched_bytes`. The module has `constants` in global memory."""

    name: str
    params: tuple[str, ...]
    maps: frozenset[str]
    code: tuple[Instruction, ...]
    labels: dict[str, int]
    widths: dict[str, int]
    places: dict[str, int]
    constants: dict[str, bytes]
    shared_bytes: int
    launched_bytes: int
    local_bytes: int
    most_threads: int

    def bits(self, register: str) -> int:
        """Return the bits of a register."""
        return self.widths.get(register) or self.widths[_PREFIX.match(register)[0]]

    @property
    def grain(self) -> int:
        """The bytes of the smallest access to shared or global memory."""
        accesses = (each for each in self.code if each.name in ("ld", "st"))
        kinds = [each.suffixes for each in accesses if each.suffixes[0] in ("shared", "global")]
        return min((int(suffixes[-1][1:]) // 8 for suffixes in kinds), default=4)

    @property
    def written(self) -> tuple[int, ...]:
        """The positions of the parameters that addresses of stores to global memory come from."""
        sources: dict[str, frozenset[int]] = {}
        stores: frozenset[int] = frozenset()
        while True:
            before = dict(sources)
            for each in self.code:
                named = _NAMES.findall(" ".join(each.operands[1:]))
                of = frozenset().union(*(sources.get(name, frozenset()) for name in named))
                if each.name == "ld" and each.suffixes[0] == "param":
                    of = frozenset({self.params.index(_NAMES.findall(each.operands[1])[0])})
                elif each.name in ("ld", "setp", "bra", "bar", "cp"):
                    continue
                elif each.name == "st":
                    if each.suffixes[0] == "global":
                        for name in _NAMES.findall(each.operands[0]):
                            stores |= sources.get(name, frozenset())
                    continue
                for name in _NAMES.findall(each.operands[0]) if each.operands else ():
                    sources[name] = sources.get(name, frozenset()) | of
            if sources == before:
                return tuple(sorted(stores))


def dtype_of(suffix):
    """Return the numpy type of an operand."""
    if suffix == "pred":
        return np.dtype(bool)
    return np.dtype(f"{_KINDS[suffix[0]]}{int(suffix[1:]) // 8}")


def listed(operand):
    """Return the operands that braces hold, or the operand alone."""
    return re.findall(r"[%\w.]+", operand) if operand[0] == "{" else [operand]


def kernels_of(text: str) -> dict[str, Kernel]:
    """Return the entry points of a module by name."""
    launched = of_launches(text)
    text = re.sub(r"//[^\n]*", "", text)
    places: dict[str, int] = {}
    end = 0
    for alignment, name, nbytes in _SHARED.findall(text):
        places[name] = end = -(-end // int(alignment)) * int(alignment)
        end += int(nbytes)
    constants = {
        name: bytes(map(int, listed.split(","))) for name, listed in _CONSTANT.findall(text)
    }
    for alignment, name in _EXTERN.findall(text):
        places[name] = -(-end // int(alignment)) * int(alignment)
    first = max((places[name] for _, name in _EXTERN.findall(text)), default=0)
    return {
        match[1]: _kernel(
            *match.groups(),
            *(places, constants),
            first + launched[match[1]] if match[1] in launched else end,
            launched.get(match[1], 0),
        )
        for match in _ENTRY.finditer(text)
    }


def _kernel(name, params, directives, body, places, constants, shared_bytes, launched_bytes):
    local_bytes = 0
    for depot, nbytes in _LOCAL.findall(body):
        places = {**places, depot: local_bytes}
        local_bytes += int(nbytes)
    widths: dict[str, int] = {}
    code, labels = _code(body, widths)
    most = re.search(r"\.maxntid\s+(\d+)", directives)
    maps = re.findall(r"\.param\s+\.align\s+64\s+\.b8\s+([\w$.]+)\[128\]", params)
    params = re.sub(r"\[\d+\]", "", params)
    return Kernel(
        name,
        tuple(re.findall(r"\.param\s[^,]*?([\w$.]+)\s*(?:,|$)", params.strip())),
        frozenset(maps),
        code,
        labels,
        widths,
        places,
        constants,
        shared_bytes,
        launched_bytes,
        local_bytes,
        int(most[1]) if most else 1024,
    )


def _code(body, widths):
    """Return the instructions of a body and its labels, and enter its registers into `widths`."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    scopes: list[dict[str, str]] = [{}]  # The names of the registers of inner blocks.
    rest = body.lstrip()
    while rest:
        if rest[0] in "{}":
            if rest[0] == "{":
                scopes.append(dict(scopes[-1]))
            else:
                scopes.pop()
            rest = rest[1:].lstrip()
        elif match := re.match(r"([\w$]+):", rest):
            labels[match[1]] = len(code)
            rest = rest[match.end() :].lstrip()
        else:
            statement, _, rest = rest.partition(";")
            text, rest = " ".join(statement.split()), rest.lstrip()
            if match := _REGISTERS.match(text):
                _declare(*match.groups(), scopes[-1], widths)
            elif text and text[0] != ".":
                code.append(_instruction(_WORD.sub(lambda m: scopes[-1].get(m[0], m[0]), text)))
    return tuple(code), labels


def _declare(kind, names, scope, widths):
    """Enter registers: `%r<9>` or `%SP` of a kernel, or `tmp` of a block by a name of its own."""
    for name in re.split(r",\s*", names):
        if name[0] == "%":
            entered = name.partition("<")[0]
        else:
            entered = scope[name] = f"%{name}{len(widths)}"
        widths[entered] = 1 if kind == "pred" else int(kind[1:])


def _instruction(text):
    guard, rest = None, text
    if text[0] == "@":
        register, rest = text[1:].split(None, 1)
        guard = (register.lstrip("!"), register[0] == "!")
    opcode, _, operands = rest.partition(" ")
    name, *suffixes = opcode.split(".")
    listed = tuple(each.strip() for each in _OPERAND.findall(operands))
    return Instruction(text, name, tuple(suffixes), listed, guard)
