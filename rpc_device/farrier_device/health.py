"""The temperature, clock and throttling of this machine, as far as Linux reports them.

Sources: Linux `Documentation/ABI/testing/sysfs-class-thermal`,
`Documentation/hwmon/sysfs-interface.rst`, `Documentation/admin-guide/pm/cpufreq.rst`,
`drivers/thermal/intel/therm_throt.c`; for a Raspberry Pi, the firmware's `get_throttled`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from farrier_device import arch, describe

SYS = Path("/sys")
LIMIT_CELSIUS = arch.here().limit_celsius  # It holds where the kernel states no trip point.

_PROCESSORS = re.compile(r"cpu|soc|core|pkg|package")  # The names of a processor's thermal zones.
# The chips of hwmon that measure processors.
_CHIPS = ("coretemp", "cpu_thermal", "k10temp", "zenpower")
_SLOWING = ("passive", "hot")  # The trip points at which the kernel slows the processor down.
_PI = Path("devices/platform/soc/soc:firmware/get_throttled")
_PI_BITS = ("under-voltage", "clock capped", "throttled", "soft temperature limit")  # now
_THROTTLES = ("core_throttle_count", "package_throttle_count")


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """The health of a machine at one moment. An unknown number is None, and an unknown `throttled`
    is ""."""

    celsius: float | None = None  # The processor's temperature, of the sensor nearest to its limit.
    limit_celsius: float | None = None  # The temperature from which it counts as hot.
    clock_mhz: int | None = None  # The clock of the fastest measuring core.
    max_clock_mhz: int | None = None
    throttled: str = ""  # why, now
    throttles: int | None = None  # The times that it was too hot since the start of the system.

    @property
    def hot(self) -> str:
        """The reason why the machine may be slower than when cool; "" if it is cool, or if no
        temperature is reported."""
        reasons = []
        celsius, limit = self.celsius, self.limit_celsius
        if celsius is not None and limit is not None and celsius >= limit:
            reasons.append(f"{celsius:.0f} °C, limit {limit:.0f} °C")
        if self.throttled:
            reasons.append(self.throttled)
        return ", ".join(reasons)


def look(sys: Path = SYS, cpus: Sequence[int] | None = None) -> Health:
    """Read the health of this machine; `sys` is the path of sysfs, `cpus` are the measuring
    CPUs."""
    cpus = describe.available_cpus() if cpus is None else cpus
    sensors = list(_zones(sys)) or list(_sensors(sys))
    celsius, limit = max(sensors, key=lambda sensor: sensor[0] - sensor[1], default=(None, None))
    folders = [sys / f"devices/system/cpu/cpu{cpu}" for cpu in cpus]
    counts = [
        _number(sensor / "thermal_throttle" / name) for sensor in folders for name in _THROTTLES
    ]
    return Health(
        celsius=celsius,
        limit_celsius=limit,
        clock_mhz=_mhz([sensor / "cpufreq/scaling_cur_freq" for sensor in folders]),
        max_clock_mhz=_mhz([sensor / "cpufreq/cpuinfo_max_freq" for sensor in folders]),
        throttled=_throttled(sys / _PI),
        throttles=sum(counted) if (counted := [n for n in counts if n is not None]) else None,
    )


def _zones(sys: Path) -> Iterator[tuple[float, float]]:
    """Yield the temperature and the limit, in °C, of each thermal zone of the processor."""
    for zone in sorted(sys.glob("class/thermal/thermal_zone*")):
        temperature = _number(zone / "temp")
        if temperature is None or not _PROCESSORS.search(_read(zone / "type")):
            continue
        trips = [
            _number(path.with_name(path.name.replace("_type", "_temp")))
            for path in zone.glob("trip_point_*_type")
            if _read(path) in _SLOWING
        ]
        yield temperature / 1000, _limit(trips)


def _sensors(sys: Path) -> Iterator[tuple[float, float]]:
    """Yield the temperature and the limit, in °C, of each processor sensor in hwmon, which covers
    processors without a thermal zone."""
    for chip in sorted(sys.glob("class/hwmon/hwmon*")):
        if _read(chip / "name") not in _CHIPS:
            continue
        for path in sorted(chip.glob("temp*_input")):
            temperature = _number(path)
            if temperature is not None:
                critical = path.with_name(path.name.replace("_input", "_crit"))
                yield temperature / 1000, min(_limit([_number(critical)]), LIMIT_CELSIUS)


def _limit(thousandths: Sequence[int | None]) -> float:
    """Return the lowest trip point in °C, from values in thousandths of a degree; values of 0 or
    less are not set, and ignored."""
    stated = [value / 1000 for value in thousandths if value is not None and value > 0]
    return min(stated, default=LIMIT_CELSIUS)


def _throttled(path: Path) -> str:
    try:
        bits = int(_read(path), 16)
    except ValueError:
        return ""
    return ", ".join(name for bit, name in enumerate(_PI_BITS) if bits >> bit & 1)


def _mhz(paths: Sequence[Path]) -> int | None:
    clocks = [khz for path in paths if (khz := _number(path)) is not None]
    return round(max(clocks) / 1000) if clocks else None


def _number(path: Path) -> int | None:
    try:
        return int(_read(path))
    except ValueError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
