"""The selection of the tuning records that a request concerns: the shared records, or the caller's
private ones."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from farrier_farm.records.records import Records
from farrier_server.access import asks_for_private
from farrier_server.context import FarmDep
from farrier_server.gate import OwnerDep


def _records(
    request: Request,
    farm: FarmDep,
    owner: OwnerDep,
    private: Annotated[
        bool,
        Query(
            description="True if the request concerns the records of the user's private jobs, "
            "rather than the records that all users share."
        ),
    ] = False,
) -> Records:
    # The access check has already parsed this parameter; it is declared here for the OpenAPI
    # document.
    return farm.private_records(owner) if asks_for_private(request) else farm.records


RecordsDep = Annotated[Records, Depends(_records)]
"""The tuning records that a request concerns: the shared records or, if the request selects them,
the caller's private records."""
