"""Metrics for Prometheus. They need a token, because they reveal users' activity and the
devices."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from farrier_server.metrics import Metrics

router = APIRouter(tags=["health"])


class MetricsText(Response):
    """A text response of its own class, which names the media type in the OpenAPI document."""

    media_type = CONTENT_TYPE_LATEST


@router.get("/metrics", response_class=MetricsText)
def get_metrics(request: Request) -> MetricsText:
    """Return the metrics of this server's requests and of the farm, in Prometheus's text format.
    Prometheus's configuration names the token: `authorization: {credentials_file: user.token}`."""
    metrics: Metrics = request.app.state.metrics
    return MetricsText(metrics.text())
