"""What the routes share: the farm, and the word that the server is going down."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated

from fastapi import Depends, Request

from farrier_farm.farm import Farm


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """One per application. `stopping` is set when the server begins to shut down: whoever streams
    without end ends then."""

    farm: Farm
    stopping: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)


# These take no time: asynchronous, they need no thread of those that routes wait for Redis in.


async def of_request(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _farm(request: Request) -> Farm:
    return (await of_request(request)).farm


FarmDep = Annotated[Farm, Depends(_farm)]
ContextDep = Annotated[Context, Depends(of_request)]
