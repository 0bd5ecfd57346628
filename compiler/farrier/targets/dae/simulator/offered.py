"""The simulator as a plug-in of device agents: the entry point `farrier.simulators` of this
package."""

from __future__ import annotations

from farrier.errors import UsageError
from farrier.targets.dae.backend import BACKEND
from farrier.targets.dae.description import ARCH
from farrier.targets.names import parse_machine
from farrier_device.describe import MachineDescription
from farrier_device.simulators import Simulator


def _machine(stated: str) -> MachineDescription:
    """Return the machine description of the accelerator that `stated` names, or that it describes
    as the text of a file. Raises ValueError."""
    try:
        if "\n" in stated and not stated.lstrip().startswith("{"):
            return BACKEND.read(stated)
        machine = parse_machine(stated.strip()).description
    except UsageError as error:
        raise ValueError(error.message) from None
    if machine.arch != ARCH:
        raise ValueError(f"it is a machine of the architecture {machine.arch}, and not {ARCH}")
    return machine


SIMULATOR = Simulator(
    machine=_machine,
    kinds={
        "dae": "farrier.targets.dae.device:SimulatedDevice",
        "dae-library": "farrier.targets.dae.runner:simulated_host",
    },
)
