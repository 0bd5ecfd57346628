"""Tests of a machine's reported temperature and clock, and of the agent's wait for it to cool."""

from __future__ import annotations

import threading

import pytest

from farrier_device.cooling import Cooling
from farrier_device.health import LIMIT_CELSIUS, Health, look

PI = "devices/platform/soc/soc:firmware/get_throttled"


@pytest.fixture
def sys(tmp_path):
    """Write files below a sysfs: `sys({path: text})` is where it lies."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path

    return write


def zone(number, name, thousandths, trips=()):
    folder = f"class/thermal/thermal_zone{number}"
    files = {f"{folder}/type": name, f"{folder}/temp": thousandths}
    for index, (kind, temperature) in enumerate(trips):
        files[f"{folder}/trip_point_{index}_type"] = kind
        files[f"{folder}/trip_point_{index}_temp"] = temperature
    return files


class TestLook:
    def test_a_system_that_tells_nothing(self, tmp_path):
        assert look(tmp_path, [0, 1]) == Health()
        assert not Health().hot

    def test_a_raspberry_pi(self, sys):
        clock = "devices/system/cpu/cpu{}/cpufreq/{}"
        files = {
            **zone(0, "cpu-thermal", 61322, [("critical", 110000)]),
            **{clock.format(cpu, "scaling_cur_freq"): 1500000 - cpu for cpu in range(4)},
            **{clock.format(cpu, "cpuinfo_max_freq"): 1800000 for cpu in range(4)},
            PI: "50005",  # The low bits are current, the high ones date from its start.
        }
        health = look(sys(files), range(4))
        assert (health.celsius, health.limit_celsius) == (61.322, LIMIT_CELSIUS)
        assert (health.clock_mhz, health.max_clock_mhz) == (1500, 1800)
        assert health.throttled == health.hot == "under-voltage, throttled"
        sys({PI: "50000"})
        assert not look(sys({}), range(4)).hot

    def test_the_trip_point_that_the_kernel_states_counts(self, sys):
        trips = [("critical", 95000), ("passive", 70000), ("hot", 90000)]
        root = sys(zone(0, "soc-thermal", 70000, trips))
        assert look(root, [0]).hot == "70 °C, limit 70 °C"
        sys(zone(0, "soc-thermal", 69999, trips))
        assert not look(root, [0]).hot

    def test_a_trip_point_that_is_not_set_is_none(self, sys):
        root = sys(zone(0, "x86_pkg_temp", 50000, [("passive", -274000), ("passive", 0)]))
        assert look(root, [0]).limit_celsius == LIMIT_CELSIUS

    def test_of_zones_that_which_is_nearest_to_its_limit(self, sys):
        files = {
            **zone(0, "battery", 99000),
            **zone(1, "bigcore0-thermal", 70000, [("passive", 85000)]),
            **zone(2, "cpu-little", 65000, [("passive", 60000)]),
        }
        assert look(sys(files), [0]).celsius == 65.0

    def test_hwmon_where_there_is_no_zone(self, sys):
        files = {
            "class/hwmon/hwmon0/name": "nvme",
            "class/hwmon/hwmon0/temp1_input": 90000,
            "class/hwmon/hwmon1/name": "coretemp",
            "class/hwmon/hwmon1/temp1_input": 71000,
            "class/hwmon/hwmon1/temp1_crit": 70000,
        }
        assert look(sys(files), [0]).hot == "71 °C, limit 70 °C"

    def test_times_that_x86_was_too_hot(self, sys):
        counter = "devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"
        health = look(sys({counter.format(0): 3, counter.format(1): 4}), [0, 1])
        assert (health.throttles, health.hot) == (7, "")


COOL, HOT = Health(60.0, 80.0), Health(85.0, 80.0)


class TestCooling:
    def test_it_waits_until_the_machine_is_cool(self, caplog):
        said = []

        def looks():
            said.append(cooling.message)
            return HOT if len(said) < 3 else COOL

        cooling = Cooling(60.0, looks, look_s=0.0)
        with caplog.at_level("INFO"):
            cooling.wait(threading.Event())
        assert said == ["", *["waits to cool: 85 °C, limit 80 °C"] * 2]
        assert not cooling.message
        assert "hot (85 °C, limit 80 °C): waiting" in caplog.text

    def test_after_its_longest_wait_it_goes_on(self, caplog):
        cooling = Cooling(0.02, lambda: HOT, look_s=0.01)
        cooling.wait(threading.Event())
        assert "measuring anyway" in caplog.text
        assert not cooling.message

    def test_it_does_not_wait_once_more_before_it_was_cool(self):
        readings = iter([HOT, HOT, HOT, COOL, HOT, HOT])
        waited = []

        def looks():
            waited.append(bool(cooling.message))
            return next(readings)

        cooling = Cooling(0.02, looks, look_s=0.03)
        for _ in range(4):
            cooling.wait(threading.Event())
        assert waited == [False, True, False, False, False, True]

    def test_whoever_drains_waits_no_longer(self):
        stop = threading.Event()
        stop.set()
        Cooling(1e6, lambda: HOT, look_s=1e6).wait(stop)

    @pytest.mark.parametrize(
        ("before", "after", "said"),
        [
            (COOL, COOL, ""),
            (HOT, COOL, "85 °C"),
            (COOL, HOT, "85 °C"),
            (Health(throttles=3), Health(throttles=4), "throttled meanwhile"),
            (Health(throttles=3), Health(throttles=3), ""),
        ],
    )
    def test_verdict(self, before, after, said):
        looks = iter([before, after])
        cooling = Cooling(look=lambda: next(looks))
        cooling.begin()
        verdict = cooling.verdict()
        assert verdict.startswith(said)
        assert bool(verdict) == bool(said)
