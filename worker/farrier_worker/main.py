"""The worker's process, until it is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType

from farrier_farm.farm import Farm
from farrier_farm.settings import Settings
from farrier_worker.supervisor import JOB_COMMAND, Supervisor


def run(settings: Settings, *, command: Sequence[str] = JOB_COMMAND) -> int:
    """Works until SIGTERM or SIGINT, then drains: running jobs have `drain_s` to end and are handed
    back after that; a second signal hands them back at once. Returns the exit code.

    Raises ServiceError where Redis is out of reach at the start."""
    farm = Farm.open(settings)
    supervisor = Supervisor(farm, command=command)

    def drain(_number: int, _frame: FrameType | None) -> None:
        supervisor.drain()

    previous = {n: signal.signal(n, drain) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        supervisor.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        farm.close()
    return 0
