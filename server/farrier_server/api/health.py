"""Health: for whoever starts, restarts and balances the server; needs no token, tells nothing."""

from __future__ import annotations

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
def readyz(farm: FarmDep) -> Health:
    """Readiness: Redis and the disk answer as well."""
    farm.check()
    return Health()
