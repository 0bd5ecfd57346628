"""The job process: compiles one model for one attempt, then ends. `python -m farrier_worker.job`.

Models are parsed here and nowhere else on the farm, in a process that has limits and that may
crash: the supervisor sees it. It records its events and its end itself, under the fence of its
lease."""

from __future__ import annotations

import itertools
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from farrier import progress
from farrier.errors import FarrierError, ServiceError, StorageError
from farrier_farm.errors import DeviceAwayError, StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases import Lease
from farrier_farm.settings import Settings
from farrier_worker.attempt import RETRY_LATER
from farrier_worker.memory import limit_this_process, out_of_memory

if TYPE_CHECKING:
    from farrier.runtime.artifact import Artifact

_ROOM_PAUSE_S = 1.0  # between two tries to store what a full disk refused


def main(argv: Sequence[str]) -> int:
    """`argv`: id of the job, fence, number of the attempt, holder. Returns 0 when the end is
    recorded, or that the job is to wait for a device, or when this attempt has lost its lease and
    has no business recording anything."""
    item, fence, attempt, owner = argv
    settings = Settings.from_environment()
    signal.signal(signal.SIGTERM, _leave)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_this_process(settings)
    try:
        farm = Farm.open(settings)
        try:
            run(farm, Lease(item, int(fence), int(attempt), owner))
        finally:
            farm.close()
    except StaleLeaseError as error:
        print(error, file=sys.stderr)
    except ServiceError as error:
        print(error, file=sys.stderr)
        return RETRY_LATER
    return 0


def run(farm: Farm, lease: Lease) -> None:
    """Compiles, and records how it went. Raises StaleLeaseError and ServiceError; a FarrierError of
    the compilation fails the job, but for a device that the job waits for; anything else is a
    crash."""
    from farrier.pipeline import compile_model  # under the limits

    job = farm.jobs.get(lease.item)
    number = itertools.count(1)
    in_order = threading.Lock()  # threads that measure speak, too

    def say(event: progress.Event) -> None:
        with in_order:
            farm.jobs.say(lease, next(number), event)

    try:
        options = job.compile_options
        artifact = compile_model(
            farm.models.opened(job.model, job.name or "model"),
            options,
            runner=farm.runner(options.target, lease, say),
            records=farm.records,
            listener=say,
        )
        farm.jobs.succeed(lease, _stored(farm, artifact, say), artifact.report)
    except (StaleLeaseError, ServiceError):
        raise
    except DeviceAwayError as error:
        if job.wait_for_device:
            farm.jobs.give_back(lease, crashed=False, reason=error.message)
        else:
            farm.jobs.fail(lease, error)
    except MemoryError:
        farm.jobs.fail(lease, out_of_memory(farm.settings))
    except StorageError as error:
        farm.jobs.fail(lease, _with_way_on(error, farm.jobs.get(lease.item).progress.trials))
    except FarrierError as error:
        farm.jobs.fail(lease, error)


def _stored(farm: Farm, artifact: Artifact, say: progress.Listener) -> str:
    """The digest of the artifact, once it and the records are in the blob store. A disk that is
    full may have room before `room_wait_s` is over: a warning says that the job waits. Raises
    StorageError."""
    deadline = time.monotonic() + farm.settings.room_wait_s
    warned = False
    while True:
        try:
            farm.records.archive()
            return farm.blobs.put_written(artifact.write)
        except StorageError as error:
            if time.monotonic() >= deadline:
                raise
            if not warned:
                waits = f"the job waits {farm.settings.room_wait_s:.0f} s for room"
                say(progress.Warned(f"{error.message}; {waits}"))
                warned = True
        time.sleep(_ROOM_PAUSE_S)


def _with_way_on(error: StorageError, trials: int | None) -> StorageError:
    """Says what stays of the work of a job that could not store all of it."""
    if not trials:
        return error
    kept = f"then submit the model again: the records of its {trials} trials are kept and used"
    return StorageError(error.message, hint=f"{error.hint or 'look at the disk'}; {kept}")


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # so that batches in flight are dropped on the way out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
