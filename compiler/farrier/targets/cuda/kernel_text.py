"""The renderer of lowered kernels as LLVM text for NVPTX: a module with an entry point for each
launch.

Every parameter is a pointer to global memory. A kernel with open (dynamic) dims has an additional
parameter with i64 sizes, and the workspace buffers share the last parameter. Blocks and threads are
numbered along one axis. Workgroup arrays are in address space 3; arrays of a thread are stack
slots, which LLVM's passes turn into registers. Where the workgroup arrays of an entry point take
more than a module can declare, they are parts of one array whose size the launch sets; a comment
states the size.
"""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir import instr
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, ceildiv, number
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.instr import I32, I64, Operand, Variable
from farrier.ir.loop import For, Function, Intrinsic
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import Launch, LoweredLaunch, launches
from farrier.targets.cuda import warpgroups
from farrier.targets.cuda.expressions import ALIGNMENT
from farrier.targets.cuda.instructions import instructions_of
from farrier.targets.cuda.statements import Statements
from farrier.targets.gpu.launches import entry_points, workspaces
from farrier.targets.interface import EntryPoint
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.llvm_text import Convention, definition
from farrier_device.cuda_library import map_comment, shared_comment

_GLOBAL, _SHARED = instr.pointer(1), instr.pointer(3)
_CONVENTION = Convention("ptx_kernel", f"align {ALIGNMENT}", "alwaysinline")
_SREG = "llvm.nvvm.read.ptx.sreg"
_SIZE_BYTES = 8
_MOST_DECLARED = 48 << 10  # Bytes of shared memory: CUDA C++ Programming Guide, "Shared Memory".


def render(function: Function, cpu: str) -> str:
    """Return the LLVM module of a lowered kernel for an architecture. Raises InexpressibleError."""
    declarations: set[str] = set()
    entries = zip(entry_points(function), launches(function), strict=True)
    parts = [_Entry(function, launch, entry, cpu).text(declarations) for entry, launch in entries]
    return "\n".join([*parts, *sorted(declarations)]) + "\n"


def scratch_bytes(function: Function) -> Extent:
    """Return the bytes of a kernel's workspace buffers, which are placed one after another."""
    total: Extent = 0
    for buffer in workspaces(function):
        total = total + _aligned(buffer)
    return total


def _aligned(buffer: Buffer) -> Extent:
    return ceildiv(buffer.nbytes, ALIGNMENT) * ALIGNMENT


class _Entry:
    """The renderer of one entry point."""

    def __init__(self, function: Function, launch: Launch, entry: EntryPoint, cpu: str) -> None:
        self._function = function
        self._launch = launch
        self._name = f"{function.name}{entry.suffix}"
        self._threads = entry.threads
        self._b = Builder(instructions_of(cpu))
        ranges: dict[str, Extent] = {
            s.var: s.extent for s in walk_stmts(launch.body) if isinstance(s, For)
        }
        ranges |= {loop.var: loop.extent for loop in launch.blocks}
        self._statements = Statements(self._b, Simplifier(ranges))

    def text(self, declarations: set[str]) -> str:
        """Return the text of the function definition, and add the functions that it calls to the
        declarations."""
        lowered = LoweredLaunch.of(self._launch)
        declarations.update(self._shared(lowered.shared))
        arguments = self._arguments()
        fetches = self._statements.fetch(lowered.body, self._function.params)
        arguments += fetches.maps.values()
        declarations.update(
            f'module asm "{map_comment(self._name, number_of_map, each)}"'
            for number_of_map, each in enumerate(fetches.maps)
        )
        self._sizes()
        self._workspaces()
        if fetches.shared_bytes:
            name = f"{self._name}.barriers"
            array = f"[{fetches.shared_bytes} x i8] undef, align 8"
            declarations.add(f"@{name} = internal addrspace(3) global {array}")
            fetches.begin(instr.Symbol(_SHARED, name))
        self._digits(self._launch.blocks, self._special("ctaid.x"))
        self._digits(lowered.threads, self._special("tid.x"))
        self._statements.write(lowered.body)
        entry = instr.Function(self._name, arguments, self._b.body, None, True)
        attributes = f'"nvvm.maxntid"="{self._threads}"'
        return definition(entry, attributes, declarations, _CONVENTION)

    def _shared(self, buffers: Sequence[Buffer]) -> list[str]:
        """Return the declarations of the workgroup arrays."""
        alignments = self._alignments()
        ends, end = [], 0
        for buffer in buffers:
            alignment = alignments.get(buffer.name, ALIGNMENT)
            end = -(-end // alignment) * alignment + max(1, number(buffer.nbytes))
            ends.append(end)
        if end > _MOST_DECLARED:
            return self._sized_by_launch(buffers, ends)
        lines = []
        for buffer in buffers:
            name, alignment = f"{self._name}.{buffer.name}", alignments.get(buffer.name, ALIGNMENT)
            self._statements.bases[buffer.name] = instr.Symbol(_SHARED, name)
            array = f"[{max(1, number(buffer.nbytes))} x i8]"
            kind = "internal addrspace(3) global"
            lines.append(f"@{name} = {kind} {array} undef, align {alignment}")
        return lines

    def _sized_by_launch(self, buffers: Sequence[Buffer], ends: Sequence[int]) -> list[str]:
        name = f"{self._name}_shared"  # PTX has no dots in names of external arrays.
        alignment = max(self._alignments().values(), default=ALIGNMENT)
        array = instr.Symbol(_SHARED, name)
        for buffer, end in zip(buffers, ends, strict=True):
            first = instr.index(end - max(1, number(buffer.nbytes)))
            self._statements.bases[buffer.name] = self._b.hoisted(
                0, instr.OFFSET, _SHARED, (array, first)
            )
        kind = "external addrspace(3) global [0 x i8]"
        return [
            f'module asm "{shared_comment(self._name, ends[-1])}"',
            f"@{name} = {kind}, align {alignment}",
        ]

    def _alignments(self) -> dict[str, int]:
        """Return the alignment of each workgroup array whose positions products of warpgroups
        prescribe."""
        return {
            tile.buffer.name: warpgroups.ALIGNMENT
            for call in walk_stmts(self._launch.body)
            if isinstance(call, Intrinsic)
            and call.operands[0].buffer.scope is MemoryScope.WARPGROUP
            for tile in call.operands[1:]
        }

    def _arguments(self) -> list[Variable]:
        arguments = []
        for buffer in self._function.params:
            pointer = Variable(_GLOBAL, f"m_{buffer.name}")
            self._statements.bases[buffer.name] = pointer
            arguments.append(pointer)
        self._of_sizes = Variable(_GLOBAL, "sizes_")
        self._of_scratch = Variable(_GLOBAL, "scratch_")
        arguments += [self._of_sizes] if self._function.dims else []
        arguments += [self._of_scratch] if scratch_bytes(self._function) != 0 else []
        return arguments

    def _sizes(self) -> None:
        indices, b = self._statements.indices, self._b
        for position, symbol in enumerate(self._function.dims):
            at = instr.index(_SIZE_BYTES * position)
            place = b.hoisted(0, instr.OFFSET, _GLOBAL, (self._of_sizes, at))
            size = b.hoisted(0, instr.LOAD, I64, (place,), _SIZE_BYTES)
            indices.sizes[symbol.name] = size
        for named in self._function.sizes:
            indices.sizes[named.name] = indices.size(named.extent)

    def _workspaces(self) -> None:
        first: Extent = 0
        for buffer in workspaces(self._function):
            at = self._statements.indices.size(first)
            place = self._b.hoisted(0, instr.OFFSET, _GLOBAL, (self._of_scratch, at))
            self._statements.bases[buffer.name] = place
            first = first + _aligned(buffer)

    def _special(self, register: str) -> Operand:
        return self._b.call(f"{_SREG}.{register}", I32)

    def _digits(self, loops: Sequence[For], of: Operand) -> None:
        """Emit the loop variables of a nest, computed from the linear number of an iteration, which
        fits in 31 bits."""
        inner: Extent = 1
        for loop in reversed(loops):
            digit = of
            if inner != 1:
                digit = self._b.op(instr.UDIV, of, self._narrow(inner))
            if loop is not loops[0]:
                digit = self._b.op(instr.UREM, digit, self._narrow(loop.extent))
            self._statements.indices.variables[loop.var] = digit
            inner = inner * loop.extent

    def _narrow(self, extent: Extent) -> Operand:
        if isinstance(extent, int):
            return instr.number_of(I32, extent)
        return self._b.convert(instr.TRUNC, self._statements.indices.size(extent), I32)
