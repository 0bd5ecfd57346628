"""Metrics for Prometheus, behind the token: they tell what users do and which devices there are."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from farrier_server.metrics import Metrics

router = APIRouter(tags=["health"])


class MetricsText(Response):
    """Named for the OpenAPI page."""

    media_type = CONTENT_TYPE_LATEST


@router.get("/metrics", response_class=MetricsText)
def get_metrics(request: Request) -> MetricsText:
    """This server's requests and the farm, in Prometheus's text format. Its configuration names the
    token: `authorization: {credentials_file: user.token}`."""
    metrics: Metrics = request.app.state.metrics
    return MetricsText(metrics.text())
