"""The route for Prometheus's metrics. The route needs a token, because the metrics reveal the
devices and the activity of users."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from farrier_server.metrics import Metrics

router = APIRouter(tags=["health"])


class MetricsText(Response):
    """A text response that has its own media type in the OpenAPI document."""

    media_type = CONTENT_TYPE_LATEST


@router.get("/metrics", response_class=MetricsText)
def get_metrics(request: Request) -> MetricsText:
    """Return the metrics of this server's requests and of the farm, in Prometheus's text format. To
    scrape them, name a file with a user's token in Prometheus's configuration: `authorization:
    {credentials_file: user.token}`."""
    metrics: Metrics = request.app.state.metrics
    return MetricsText(metrics.text())
