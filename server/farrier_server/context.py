"""What the routes share: the farm, and the word that the server is going down."""

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
    """One per application. `stopping` is set when the server begins to shut down: whoever streams
    without end, as `hub` does, ends then."""

    farm: Farm
    hub: Hub
    shared: Shared
    stopping: asyncio.Event

    @classmethod
    def of(cls, farm: Farm) -> Context:
        stopping = asyncio.Event()
        return cls(farm, Hub(farm.events, stopping), Shared(), stopping)


# These take no time: asynchronous, they need no thread of those that routes wait for Redis in.


async def of_request(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _farm(request: Request) -> Farm:
    return (await of_request(request)).farm


FarmDep = Annotated[Farm, Depends(_farm)]
ContextDep = Annotated[Context, Depends(of_request)]
