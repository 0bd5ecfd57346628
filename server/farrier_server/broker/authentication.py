"""The device token: judged before a call is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from farrier_farm import tokens


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Answers UNAUTHENTICATED to every call without `authorization: Bearer <device token>`."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        given = str(dict(details.invocation_metadata or ()).get("authorization", ""))
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and tokens.matches(token.strip(), self._token):
            return await continuation(details)
        return _REFUSAL


async def _refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "the device token is missing or wrong: the farm's FARRIER_HOME holds it in device.token",
    )


_REFUSAL = grpc.unary_unary_rpc_method_handler(_refuse)
