"""The process of an engine in a race of `farrier bench`, which is not sandboxed and may use another
Python environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

import farrier_device
from farrier.errors import FarrierError
from farrier_device.baseline import arrays
from farrier_device.baseline.lane import EngineError, Lane, Order
from farrier_device.child_process import ChildProcess
from farrier_device.closing import Closing

Arrays = Mapping[str, npt.NDArray[Any]]
T = TypeVar("T")

_LOAD_TIMEOUT_S = 900.0  # Some engines compile for minutes.
_ROUND_TIMEOUT_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

# The environment of an engine may have another version of Farrier, and races that. So this package
# is imported under another name, and its folder joins no search path.
_BOOTSTRAP = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("farrier_race", sys.argv[1])
package = sys.modules["farrier_race"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from farrier_race.baseline import process
process.main(sys.argv[2:])
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """Consecutive runs of an engine. `other_cores` is the number of cores that other processes kept
    busy in the meantime."""

    samples_ms: tuple[float, ...]
    other_cores: float

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)


class EngineProcess(Closing):
    """The process of an engine, which has loaded its model and run it once.

    Raises FarrierError if the engine cannot run the model, does not respond for minutes, or dies.
    """

    def __init__(self, name: str, python: str, order: Order, inputs: Arrays, folder: Path) -> None:
        """Start the process. `order` lacks the input tensors, which are `inputs`. The engine's
        messages and outputs are written to `folder`, which only this process uses."""
        self._name = name
        self._errors = (folder / "errors.txt").open("w+", errors="replace")
        command = [python, "-P", "-c", _BOOTSTRAP, str(farrier_device.__file__)]
        try:
            self._process = ChildProcess(
                lambda line: [*command, str(line)], stderr=self._errors.fileno()
            )
        except OSError as error:
            self._errors.close()
            raise FarrierError(f"{name} cannot be started: {error}") from None
        self._lane = Lane(self._process, ended=self._ending)
        try:
            self._load(order, inputs, folder)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, count: int) -> Round:
        """Return the times of `count` runs, after one untimed run if `count` is more than one."""
        own, busy, start = self._cpu_s(), _busy_s(), time.perf_counter()
        samples = self._asked(
            lambda: self._lane.run(count, int(count > 1), _ROUND_TIMEOUT_S), _ROUND_TIMEOUT_S
        )
        seconds = time.perf_counter() - start
        others = (_busy_s() - busy) - (self._cpu_s() - own)
        return Round(tuple(ns / 1e6 for ns in samples), max(0.0, others / seconds))

    def peak_bytes(self) -> int:
        """Return the peak memory of the process in bytes, its interpreter and packages included."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    def close(self) -> None:
        self._process.close()
        self._errors.close()

    def _load(self, order: Order, inputs: Arrays, folder: Path) -> None:
        described = [arrays.describe(*item) for item in inputs.items()]
        order = dataclasses.replace(order, inputs=described, keeps=True)
        with contextlib.ExitStack() as opened:
            files = []
            for number, array in enumerate(inputs.values()):
                file = opened.enter_context((folder / f"input-{number}").open("w+b", buffering=0))
                arrays.write(array, file.fileno())
                files.append(file.fileno())
            kept = opened.enter_context((folder / "outputs").open("w+b", buffering=0))
            files.append(kept.fileno())
            self.loaded = self._asked(
                lambda: self._lane.load(order, files, _LOAD_TIMEOUT_S), _LOAD_TIMEOUT_S
            )
            self.outputs = arrays.read_together(self.loaded.kept, kept.fileno())

    def _asked(self, ask: Callable[[], T], timeout_s: float) -> T:
        try:
            return ask()
        except TimeoutError:
            raise FarrierError(f"{self._name} did not answer within {timeout_s:.0f} s") from None
        except EngineError as error:
            raise FarrierError(f"{self._name}: {error}") from None

    def _ending(self) -> str:
        how = self._process.ending()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        # Some engines follow their error with advice.
        errors = [line for line in lines if _ERROR.match(line)]
        words = (errors or lines)[-1:]
        return ": ".join([f"its process was ended, {how}", *words])

    def _cpu_s(self) -> float:
        """Return the processor time that the process has used, in seconds."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def _busy_s() -> float:
    """Return the core seconds for which this machine's cores have been busy since it booted."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS
