"""The route for targets: the machines that a job can name as its target, whether or not the farm
has such a device."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from farrier.targets import KnownMachine, known_machines
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/targets", tags=["devices"])


class TargetView(BaseModel):
    """A machine that can be named as a target."""

    name: str
    arch: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    source: str = Field(description="The source of the machine's figures.")
    generic: bool = Field(
        description="True if the target is an instruction set, whose cores and caches are an "
        "assumption."
    )

    @classmethod
    def of(cls, name: str, machine: KnownMachine) -> TargetView:
        about = machine.description
        return cls(
            name=name,
            arch=about.arch,
            cores=about.cores,
            l1_bytes=about.l1_bytes,
            l2_bytes=about.l2_bytes,
            l3_bytes=about.l3_bytes,
            source=machine.source,
            generic=machine.generic,
        )


class TargetList(BaseModel):
    """The machines that `farrier targets` lists, except `host`."""

    targets: list[TargetView]


@router.get("", responses=documented())
def list_targets() -> TargetList:
    """Return all machines that can be named as a target, in the order of `farrier targets`."""
    machines = known_machines().items()
    return TargetList(targets=[TargetView.of(name, machine) for name, machine in machines])
