"""Health checks, for supervisors and load balancers; they need no token and reveal nothing."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from farrier_server.context import FarmDep
from farrier_server.problems import documented

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer of a healthy server."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Check that the process answers (liveness)."""
    return Health()


@router.get("/readyz", responses=documented(503, 507))
async def readyz(farm: FarmDep) -> Health:
    """Check that Redis and the disk answer within 2 s (readiness)."""
    # `to_thread` uses other threads than the pool in which requests wait.
    await asyncio.to_thread(farm.check)
    return Health()
