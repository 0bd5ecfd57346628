"""Tuning records: what the farm has learned, and of which devices."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from farrier.targets import called
from farrier_farm.farm import Farm
from farrier_farm.records import RecordClass
from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(prefix="/v1/records", tags=["records"])


class RecordClassView(BaseModel):
    """The records of one device class."""

    device_class: str = Field(description="its id; empty for records that tell none")
    name: str = Field(description="for people")
    records: int
    tasks: int = Field(description="distinct kernels")
    oldest: float = Field(description="Unix seconds at which the oldest was made")
    newest: float = Field(description="Unix seconds at which the newest was made")

    @classmethod
    def of(cls, farm: Farm, found: RecordClass) -> RecordClassView:
        known = farm.devices.device_class(found.device_class) if found.device_class else None
        name = found.device_class if known is None else called(known.to_text())
        return cls(
            device_class=found.device_class,
            name=name or "devices that the records do not tell",
            records=found.records,
            tasks=found.tasks,
            oldest=found.oldest,
            newest=found.newest,
        )


class RecordsView(BaseModel):
    """What is known of all jobs together."""

    count: int = Field(description="records, of whatever class")
    classes: list[RecordClassView] = Field(
        description="by id; records that an older version added may be counted an hour later"
    )
    model: dict[str, Any] | None = Field(
        description="what is known of a cost model that the records trained; null without one"
    )


@router.get("", responses=documented(503))
def get_records(farm: FarmDep) -> RecordsView:
    """How many tuning records there are. They are kept for good: the next job that has a kernel of
    the same kind, on a device of the same class, begins with them."""
    classes = [RecordClassView.of(farm, found) for found in farm.records.classes()]
    return RecordsView(count=farm.records.count(), classes=classes, model=None)
