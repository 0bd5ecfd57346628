"""Health: for whoever starts, restarts and balances the server; needs no token, tells nothing."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The server is well."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Liveness: the process answers."""
    return Health()


@router.get("/readyz", responses=documented(503, 507))
async def readyz(farm: FarmDep) -> Health:
    """Readiness: Redis and the disk answer as well, within 2 s."""
    await asyncio.to_thread(farm.check)  # these threads are none of those that requests wait in
    return Health()
