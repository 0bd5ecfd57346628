"""An engine's process in a race: started, asked for rounds, and stopped in between.

Engines keep threads spinning after a run, in the hope of the next one. A process that is not being
measured is therefore stopped (SIGSTOP) with all that it started: it takes no core from the one that
is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import signal
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from farrier.errors import FarrierError

_LOAD_TIMEOUT_S = 900.0  # some engines compile for minutes
_ROUND_TIMEOUT_S = 120.0
_SLOW_S = 0.5  # of one run: no more of it than needed
_TICKS = os.sysconf("SC_CLK_TCK")
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
_ENGINE = Path(__file__).with_name("engine.py")


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """Runs in a row. `other_cores` is what the machine did meanwhile for other processes."""

    samples_ms: tuple[float, ...]
    other_cores: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)


class Lane:
    """A context manager; entered, the engine has loaded the model and run it once.

    Raises FarrierError where the engine cannot run the model, says nothing for minutes, or dies.
    """

    def __init__(self, name: str, python: str, arguments: Sequence[str], errors: Path) -> None:
        """`arguments` are those of `engine.py`; what the engine prints goes to `errors`."""
        self.rounds: list[Round] = []
        self._name = name
        self._errors = errors.open("w+", errors="replace")
        self._process = subprocess.Popen(
            [python, "-P", str(_ENGINE), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # a group of its own, to stop and to end as one
        )

    def __enter__(self) -> Self:
        try:
            answer = self._answer(_LOAD_TIMEOUT_S)
            self.version, self.load_s = str(answer["version"]), float(answer["load_s"])
            self.limited = str(answer["limited"])
            self._stop()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._signal(signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def run(self, count: int) -> Round:
        """One round of `count` runs, after one that is not counted if there are several."""
        warmup = int(count > 1)
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        own, busy, start = self._cpu_s(), _busy_s(), time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # it has died: `_answer` says how
            self._process.stdin.write(f"{warmup} {count}\n")
            self._process.stdin.flush()
        samples = self._answer(_ROUND_TIMEOUT_S)
        seconds = time.perf_counter() - start
        others = (_busy_s() - busy) - (self._cpu_s() - own)
        self._stop()
        return Round(tuple(ns / 1e6 for ns in samples), max(0.0, others / seconds))

    def time_one(self) -> float:
        """Seconds of one run, for a guess of how many make a round."""
        first = self.run(1).median_ms / 1e3
        return first if first > _SLOW_S else self.run(3).median_ms / 1e3

    def peak_bytes(self) -> int:
        """The most memory that the process ever had, its interpreter and packages included."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    def _stop(self) -> None:
        """Return when the process has stopped: the next engine's clock starts after that."""
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _cpu_s(self) -> float:
        """What the process has had of the cores."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except FileNotFoundError:
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _answer(self, timeout_s: float) -> Any:
        """The next line that the process says: an answer is one line, so nothing is left in the
        buffer that `select` would not see."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            raise FarrierError(f"{self._name} did not answer within {timeout_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise FarrierError(f"{self._name} cannot run the model: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        if self._process.returncode < 0:
            return f"killed by {signal.Signals(-self._process.returncode).name}"
        # Some follow their error with advice.
        errors = [line for line in said if _ERROR.match(line)]
        return (errors or said or [f"exited with {self._process.returncode}"])[-1]


def _busy_s() -> float:
    """Core seconds that this machine has worked since it started, for whomever."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS
