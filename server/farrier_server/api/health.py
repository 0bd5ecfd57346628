"""Health checks for supervisors and load balancers. They need no token, and their answers contain
no information about the farm."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer of a working server."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Return 200 if the process answers (liveness)."""
    return Health()


@router.get("/readyz", responses=documented(503, 507))
async def readyz(farm: FarmDep) -> Health:
    """Return 200 if Redis and the disk answer within 2 s (readiness)."""
    # `to_thread` uses other threads than the pool in which requests wait.
    await asyncio.to_thread(farm.check)
    return Health()
