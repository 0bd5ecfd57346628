"""What the process of a job does, by the job's kind: a module for each.

They import what reads models within their functions, under the limits of the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.work import compilation, inspection, listing

WORK: Mapping[str, Callable[[JobChannelClient], None]] = {
    "compile": compilation.work,
    "inspect": inspection.work,
    "list": listing.work,
}
"""Each hands over what it makes; FarrierError where the job fails for its model's sake."""
