"""The temperature, clocks and throttling of an NVIDIA GPU, through the library NVML, which is part
of the driver.

Source: NVIDIA, NVML API Reference: device queries, device commands, clocks event reasons.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

from farrier_device.health import Health

log = logging.getLogger(__name__)

_LIBRARY = "libnvidia-ml.so.1"
_OUT, _HANDLE = c_void_p, c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvmlInit_v2": (),
    "nvmlShutdown": (),
    "nvmlDeviceGetHandleByPciBusId_v2": (c_char_p, _OUT),
    "nvmlDeviceGetTemperature": (_HANDLE, c_int, _OUT),
    "nvmlDeviceGetTemperatureThreshold": (_HANDLE, c_int, _OUT),
    "nvmlDeviceGetClockInfo": (_HANDLE, c_int, _OUT),
    "nvmlDeviceGetMaxClockInfo": (_HANDLE, c_int, _OUT),
    "nvmlDeviceGetDefaultApplicationsClock": (_HANDLE, c_int, _OUT),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (_HANDLE, _OUT),
    "nvmlDeviceSetGpuLockedClocks": (_HANDLE, c_uint, c_uint),
    "nvmlDeviceResetGpuLockedClocks": (_HANDLE,),
}
_OF_GPU = 0  # NVML_TEMPERATURE_GPU
_SLOWDOWN = 1  # NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
_OF_UNITS = 1  # NVML_CLOCK_SM
# nvmlClocksThrottleReason…: brakes other than an idle GPU's and the limit of power, which every
# GPU reaches.
_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_MARGIN = 5.0  # Degrees: a GPU lowers its clocks in steps before the limit.


class NvmlError(Exception):
    """NVML is missing, or a call of NVML has failed."""


class Nvml:
    """A GPU, by its PCI bus address, as NVML reports it. `library` is used in place of NVML. Raises
    NvmlError."""

    def __init__(self, bus: str, library: Any = None) -> None:
        self._library = _loaded() if library is None else library
        self._call("nvmlInit_v2")
        self._gpu = c_void_p()
        self._call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), byref(self._gpu))

    def look(self) -> Health:
        """Return the health of the GPU now; a value that NVML does not report is None."""
        limit = self._figure("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN)
        reasons = self._figure("nvmlDeviceGetCurrentClocksThrottleReasons", kind=c_ulonglong) or 0
        celsius = self._figure("nvmlDeviceGetTemperature", _OF_GPU)
        return Health(
            celsius=None if celsius is None else float(celsius),
            limit_celsius=None if limit is None else limit - _MARGIN,
            clock_mhz=self._figure("nvmlDeviceGetClockInfo", _OF_UNITS),
            max_clock_mhz=self._figure("nvmlDeviceGetMaxClockInfo", _OF_UNITS),
            throttled=", ".join(name for bit, name in _REASONS.items() if reasons & bit),
        )

    @contextlib.contextmanager
    def locked_clocks(self) -> Iterator[int | None]:
        """Return a context in which the GPU's clock is locked to the rate that it sustains under
        any load. The context's value is the rate in MHz, or None if this user may not lock the
        clock."""
        clock = self._figure("nvmlDeviceGetDefaultApplicationsClock", _OF_UNITS)
        try:
            if clock is not None:
                self._call("nvmlDeviceSetGpuLockedClocks", self._gpu, clock, clock)
        except NvmlError as error:
            log.info("cannot lock the clocks of the GPU: %s", error)
            clock = None
        try:
            yield clock
        finally:
            if clock is not None:
                with contextlib.suppress(NvmlError):
                    self._call("nvmlDeviceResetGpuLockedClocks", self._gpu)

    def close(self) -> None:
        with contextlib.suppress(NvmlError):
            self._call("nvmlShutdown")

    def _figure(self, name: str, *arguments: int, kind: Any = c_uint) -> int | None:
        result = kind()
        try:
            self._call(name, self._gpu, *arguments, byref(result))
        except NvmlError:
            return None
        return int(result.value)

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise NvmlError(f"{name} returned code {code}")


def _loaded() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError) as error:
        raise NvmlError(f"{_LIBRARY} is missing or too old: {error}") from None
    return library
