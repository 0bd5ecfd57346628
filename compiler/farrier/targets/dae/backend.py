"""The backend of the targets `dae:…`: accelerators given by a description, which a simulator runs
on any machine."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farrier.errors import CompilerError
from farrier.targets.code import CodeTexts
from farrier.targets.dae.description import ARCH, Accelerator, from_features, to_features
from farrier.targets.dae.machines import MACHINES
from farrier.targets.describing import KnownMachine
from farrier.targets.driven.backend import DrivenBackend
from farrier.targets.driven.target import DrivenTarget, baseline
from farrier.targets.scheduling import Peaks
from farrier.targets.target import MemorySpace, ParallelAxis, Target
from farrier_device.describe import MachineDescription
from farrier_device.program import HOST

if TYPE_CHECKING:
    from farrier.artifact.code import ModelCode
    from farrier.ir.loop import Function
    from farrier.ir.tensor import TensorProgram
    from farrier.ir.types import DType
    from farrier.measure import Runner
    from farrier.passes.passes import Pass
    from farrier.records import RuleId
    from farrier.space import Space
    from farrier.targets.interface import Interface
    from farrier_device.devices.device import AnyDevice

_SPACE = "dae"
_KIND, _LIBRARY = "dae", "dae-library"
_ALIGNMENT = 64  # The alignment in bytes, which is a multiple or a divisor of every port width.


@dataclasses.dataclass(frozen=True, slots=True)
class DaeTarget(DrivenTarget):
    """An accelerator as a target. Its features are the figures of its description."""

    @property
    def backend(self) -> DaeBackend:
        return BACKEND

    @property
    def accelerator(self) -> Accelerator:
        return _accelerator(self.cpu, self.features)

    @property
    def spaces(self) -> tuple[MemorySpace, ...]:
        return MemorySpace(HOST), MemorySpace(_SPACE, _ALIGNMENT)

    @property
    def axes(self) -> tuple[ParallelAxis, ...]:
        return ParallelAxis("blocks", 1), ParallelAxis("threads", 1)


@functools.cache
def _accelerator(name: str, features: tuple[str, ...]) -> Accelerator:
    return from_features(name, features)


class DaeBackend(DrivenBackend):
    """The backend for DAE accelerators. Convolutions, matrix products, pools and additions of bytes
    run on the accelerator, all other kernels on the host."""

    space_of_device = _SPACE
    kernel_kind = _KIND
    library_kind = _LIBRARY
    target_type = DaeTarget
    name = "dae"
    archs = frozenset({ARCH})

    @property
    def machines(self) -> Mapping[str, KnownMachine]:
        return MACHINES

    def target(self, machine: MachineDescription) -> DaeTarget:
        from farrier.targets.names import parse_target

        accelerator = from_features(machine.cpu, machine.features)
        host = parse_target(machine.host) if machine.host else baseline()
        return DaeTarget(
            f"{ARCH}-unknown-unknown", accelerator.name, to_features(accelerator), host=host
        )

    def read(self, text: str) -> MachineDescription:
        from farrier.targets.dae.description import read
        from farrier.targets.dae.machines import described

        return described(read(text))

    def written(self, machine: MachineDescription) -> str:
        from farrier.targets.dae.description import to_toml

        return to_toml(from_features(machine.cpu, machine.features))

    # -- what becomes of a graph

    @property
    def passes(self) -> tuple[str, ...]:
        from farrier.targets.dae.passes import ORDER

        return ORDER

    @property
    def own_passes(self) -> Mapping[str, Pass]:
        from farrier.targets.dae.passes import PASSES

        return PASSES

    @property
    def takes_open_sizes(self) -> bool:
        return False

    def byte_factors(self, target: Target) -> DType | None:
        return _as_dae(target).accelerator.matrix.input

    # -- running its code on this machine

    def why_not_here(self, arch: str, cpu: str, features: Sequence[str]) -> str:
        return ""

    def runner(self) -> Runner:
        from farrier.targets.dae.runner import SimulatorRunner

        return SimulatorRunner()

    def open(self, code: ModelCode) -> tuple[AnyDevice, str]:
        from farrier.targets.dae.device import SimulatedDevice

        device = SimulatedDevice()
        device.load_modules(
            {each.path: each.content.decode() for each in code.objects if each.kind == _KIND}
        )
        return device, device.name

    def traces(
        self, code: ModelCode
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Sequence[str]]:
        from farrier.targets.dae.program import Program
        from farrier.targets.dae.simulator.timeline import LANES, trace

        texts = [each.content.decode() for each in code.objects if each.kind == _KIND]
        return {each.name: trace(each) for each in map(Program.of_text, texts)}, LANES

    def peaks(self, target: Target, threads: int) -> Peaks:
        accelerator = _as_dae(target).accelerator
        matrix, hertz = accelerator.matrix, accelerator.mhz * 1e6
        operations = 2 * matrix.batch * matrix.inner * matrix.outer * hertz
        return Peaks(operations, accelerator.port.bytes * hertz)

    # -- the steps of a compilation

    def loop_passes(self, target: Target) -> tuple[str, ...]:
        return ()  # The code is an instruction stream already.

    @property
    def rules(self) -> frozenset[RuleId]:
        from farrier.targets.dae.rules import RULES

        return RULES

    def why_not_on_device(self, program: TensorProgram | Function, target: Target) -> str:
        from farrier.targets.dae.rules import why_not

        return why_not(program, _as_dae(target).accelerator)

    def space(self, program: TensorProgram | Function, target: Target, threads: int) -> Space:
        from farrier.targets.dae.rules import space

        return space(program, _as_dae(target).accelerator)

    def interface(self, function: Function) -> Interface:
        from farrier.targets.interface import EntryPoint, Interface

        entries = (EntryPoint("_0", 1, 1),)
        return Interface(function.name, function.params, function.dims, 0, 0, entries)

    def render(self, function: Function, target: Target) -> str:
        from farrier.targets.dae.rules import StreamFunction

        if not isinstance(function, StreamFunction) or function.code is None:
            raise CompilerError(f"kernel {function.name} has no program for an accelerator")
        return function.code.named(function.name).text()

    def texts(self, function: Function, target: Target) -> CodeTexts:
        from farrier.targets.dae.rules import StreamFunction
        from farrier.targets.dae.simulator.timeline import LANES, trace

        assert isinstance(function, StreamFunction)
        code = function.code
        if code is None:
            return CodeTexts()
        lines = map(str, code.instructions)
        timeline = json.dumps({"lanes": LANES, "mhz": code.accelerator.mhz, "events": trace(code)})
        return CodeTexts(assembly="\n".join(lines) + "\n", timeline=timeline)

    @property
    def has_steady_clock(self) -> bool:
        return True

    @property
    def packs_on_device(self) -> bool:
        return False


def _as_dae(target: Target) -> DaeTarget:
    if not isinstance(target, DaeTarget):
        raise CompilerError(f"{target.cpu} is not an accelerator")
    return target


BACKEND = DaeBackend()
