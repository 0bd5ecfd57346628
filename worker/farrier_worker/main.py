"""The worker's process, until it is told to stop."""

from __future__ import annotations

import resource
import signal
from collections.abc import Sequence
from types import FrameType

from farrier_device.alive import SignOfLife
from farrier_farm.farm import Farm
from farrier_farm.settings import Settings
from farrier_worker.supervisor import JOB_COMMAND, Supervisor


def run(settings: Settings, *, command: Sequence[str] = JOB_COMMAND) -> int:
    """Works until SIGTERM or SIGINT, then drains: running jobs have `drain_s` to end and are handed
    back after that; a second signal hands them back at once. Returns the exit code.

    Raises ServiceError where Redis is out of reach at the start."""
    _allow_many_files()
    farm = Farm.open(settings)
    sign = SignOfLife(settings.signs, "worker")
    supervisor = Supervisor(farm, command=command, alive=sign.renew)

    def drain(_number: int, _frame: FrameType | None) -> None:
        supervisor.drain()

    previous = {n: signal.signal(n, drain) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        with farm.announcing("worker"):
            supervisor.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        sign.end()
        farm.close()
    return 0


def _allow_many_files() -> None:
    """A batch's files come as descriptors, and a model may have hundreds of inputs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
