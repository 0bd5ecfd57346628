"""The state that all routes share: the farm, and an event that is set when the server shuts
down."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated

from fastapi import Depends, Request

from farrier_farm.farm import Farm
from farrier_server.hub import Hub
from farrier_server.shared import Shared


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """The context of an application. `stopping` is set when the server begins to shut down; event
    streams, which have no end otherwise, end then."""

    farm: Farm
    hub: Hub
    shared: Shared
    stopping: asyncio.Event

    @classmethod
    def of(cls, farm: Farm) -> Context:
        stopping = asyncio.Event()
        return cls(farm, Hub(farm.events, stopping), Shared(), stopping)


# Asynchronous dependencies return at once and need no thread of the pool in which routes wait for
# Redis.


async def of_request(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _farm(request: Request) -> Farm:
    return (await of_request(request)).farm


FarmDep = Annotated[Farm, Depends(_farm)]
ContextDep = Annotated[Context, Depends(of_request)]
