"""The work of a job's process: one module for each kind of job.

Modules that parse models are imported inside functions, after the limits of the process are set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farrier_worker.job_channel_client import JobChannelClient
from farrier_worker.work import compilation, inspection, listing

WORK: Mapping[str, Callable[[JobChannelClient], None]] = {
    "compile": compilation.work,
    "inspect": inspection.work,
    "list": listing.work,
}
"""Each function sends its product. A FarrierError fails the job because of its model."""
