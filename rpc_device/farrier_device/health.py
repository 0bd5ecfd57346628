"""How hot this machine is, how fast it runs, and whether it is throttled, as far as Linux tells.

Sources: Linux `Documentation/ABI/testing/sysfs-class-thermal`,
`Documentation/hwmon/sysfs-interface.rst`, `Documentation/admin-guide/pm/cpufreq.rst`,
`drivers/thermal/intel/therm_throt.c`; of a Raspberry Pi, the firmware's `get_throttled`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from farrier_device import arch, describe

SYS = Path("/sys")
LIMIT_CELSIUS = arch.here().limit_celsius  # It holds where the kernel states no trip point.

_PROCESSORS = re.compile(r"cpu|soc|core|pkg|package")  # in the name of a zone
_CHIPS = ("coretemp", "cpu_thermal", "k10temp", "zenpower")  # of hwmon, that measure processors
_SLOWING = ("passive", "hot")  # trip points at which the kernel slows the processor down
_PI = Path("devices/platform/soc/soc:firmware/get_throttled")
_PI_BITS = ("under-voltage", "clock capped", "throttled", "soft temperature limit")  # now
_THROTTLES = ("core_throttle_count", "package_throttle_count")


@dataclasses.dataclass(frozen=True, slots=True)
class Health:
    """One look. What the system does not tell is None, and "" of `throttled`."""

    celsius: float | None = None  # of the processor, where it is nearest to its limit
    limit_celsius: float | None = None  # from which on it counts as hot
    clock_mhz: int | None = None  # of the fastest core that measures
    max_clock_mhz: int | None = None
    throttled: str = ""  # why, now
    throttles: int | None = None  # since the start of the system: times that it was too hot

    @property
    def hot(self) -> str:
        """Why it may be slower than it is when cool; "" where it is cool, or nothing tells."""
        reasons = []
        celsius, limit = self.celsius, self.limit_celsius
        if celsius is not None and limit is not None and celsius >= limit:
            reasons.append(f"{celsius:.0f} °C, limit {limit:.0f} °C")
        if self.throttled:
            reasons.append(self.throttled)
        return ", ".join(reasons)


def look(sys: Path = SYS, cpus: Sequence[int] | None = None) -> Health:
    """This machine now; `sys` is where sysfs lies, `cpus` are those that measure."""
    cpus = describe.available_cpus() if cpus is None else cpus
    found = list(_zones(sys)) or list(_sensors(sys))
    celsius, limit = max(found, key=lambda one: one[0] - one[1], default=(None, None))
    folders = [sys / f"devices/system/cpu/cpu{cpu}" for cpu in cpus]
    counts = [_number(one / "thermal_throttle" / name) for one in folders for name in _THROTTLES]
    return Health(
        celsius=celsius,
        limit_celsius=limit,
        clock_mhz=_mhz([one / "cpufreq/scaling_cur_freq" for one in folders]),
        max_clock_mhz=_mhz([one / "cpufreq/cpuinfo_max_freq" for one in folders]),
        throttled=_throttled(sys / _PI),
        throttles=sum(known) if (known := [n for n in counts if n is not None]) else None,
    )


def _zones(sys: Path) -> Iterator[tuple[float, float]]:
    """Temperature and limit of each thermal zone of the processor."""
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
    """The same of hwmon, which tells of processors that have no zone."""
    for chip in sorted(sys.glob("class/hwmon/hwmon*")):
        if _read(chip / "name") not in _CHIPS:
            continue
        for path in sorted(chip.glob("temp*_input")):
            temperature = _number(path)
            if temperature is not None:
                critical = path.with_name(path.name.replace("_input", "_crit"))
                yield temperature / 1000, min(_limit([_number(critical)]), LIMIT_CELSIUS)


def _limit(thousandths: Sequence[int | None]) -> float:
    """The lowest trip point; one that is not set is 0 or less."""
    stated = [one / 1000 for one in thousandths if one is not None and one > 0]
    return min(stated, default=LIMIT_CELSIUS)


def _throttled(path: Path) -> str:
    try:
        bits = int(_read(path), 16)
    except ValueError:
        return ""
    return ", ".join(name for bit, name in enumerate(_PI_BITS) if bits >> bit & 1)


def _mhz(paths: Sequence[Path]) -> int | None:
    known = [khz for path in paths if (khz := _number(path)) is not None]
    return round(max(known) / 1000) if known else None


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
