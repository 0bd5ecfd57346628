"""Verification of a model's outputs by a trusted device, or by two devices that agree.

A device compares the outputs and times the model itself, so a device that is not trusted could
report anything. The result of such a device is accepted only if another device of the class reports
the same result; without another device, the result is marked `untrusted`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from farrier import progress
from farrier_device.measurement import DeviceFault, MeasureResult, Status
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.devices.devices import Devices
from farrier_farm.errors import DeviceAwayError

_ASKED = 3  # The most further devices to ask, since some may be busy or disagree.

Measure = Callable[[MeasurementTarget], MeasureResult]


class Confirmation:
    """The verification of a model by the devices of a place (a device class, or a single device).
    Methods call `measure`, which measures the model at a place and returns the result. They raise
    ServiceError if Redis is out of reach, and the errors of `measure`."""

    def __init__(
        self, devices: Devices, place: MeasurementTarget, listener: progress.Listener
    ) -> None:
        self._devices = devices
        self._place = place
        self._listener = listener

    def of(self, measure: Measure) -> MeasureResult:
        """Return a result of `measure` that can be trusted. If a trusted device of the class is
        available, this is its result. Otherwise it is the slower of two results of different
        devices that agree. If only one device is available, its result is returned with `untrusted`
        set. A job for a single device is measured only on that device.

        If two devices disagree, and no third device confirms one of the results, return a fault,
        because the correct result is unknown.
        """
        trusted = None if self._place.device else self._of_trusted(measure)
        if trusted is not None:
            return trusted
        first = measure(self._place)
        if first.fault is not None or self._is_trusted(first):
            return first
        answers = [first]
        for answer in self._others(first.device, measure):
            if self._is_trusted(answer):
                return self._over(answer, answers)
            agreeing = next(
                (earlier for earlier in answers if _verdict(earlier) == _verdict(answer)), None
            )
            if agreeing is not None:
                return _agreed(agreeing, answer)
            answers.append(answer)
        if len(answers) > 1:
            return _contradictory(answers)
        return dataclasses.replace(first, untrusted=True)

    def _of_trusted(self, measure: Measure) -> MeasureResult | None:
        """Return the result of a trusted device, or None if no trusted device is available."""
        its_class = self._place.device_class
        for device in self._devices.measuring(its_class, trusted=True)[:_ASKED]:
            answer = self._asked(device, measure)
            # The trust may have been revoked meanwhile.
            if answer is not None and self._is_trusted(answer):
                return answer
        return None

    def _others(self, first: str, measure: Measure) -> Iterator[MeasureResult]:
        """Yield the results of further devices of the class, trusted devices first; the device
        `first` is skipped. A job for a single device has no further devices."""
        if self._place.device:
            return
        its_class = self._place.device_class
        trusted = self._devices.measuring(its_class, trusted=True)
        devices = dict.fromkeys([*trusted, *self._devices.measuring(its_class)])
        for device in [candidate for candidate in devices if candidate != first][:_ASKED]:
            answer = self._asked(device, measure)
            if answer is not None:
                yield answer

    def _asked(self, device: str, measure: Measure) -> MeasureResult | None:
        """Measure on this device and return the result. Return None if the device is disconnected
        or reports a fault."""
        with contextlib.suppress(DeviceAwayError):
            answer = measure(MeasurementTarget(self._place.device_class, device))
            if answer.fault is None:
                return answer
        return None

    def _is_trusted(self, answer: MeasureResult) -> bool:
        return self._devices.are_trusted([answer.device])[0]

    def _over(self, trusted: MeasureResult, others: list[MeasureResult]) -> MeasureResult:
        """Return the result `trusted` of a trusted device. For each result in `others` that
        disagrees with it, warn of the other device."""
        for other in others:
            if _verdict(other) != _verdict(trusted):
                self._listener(
                    progress.Warned(
                        f"the device {other.device} reports that the model {_said(other)}, but "
                        f"{trusted.device}, which is trusted, that it {_said(trusted)}"
                    )
                )
        return trusted


def _agreed(first: MeasureResult, second: MeasureResult) -> MeasureResult:
    """Return the slower of two results that agree, marked as confirmed by the device of the faster
    one. The slower one is returned because an invented time would probably be short."""
    slower, faster = sorted((first, second), key=_time, reverse=True)
    return dataclasses.replace(slower, confirmed_by=faster.device)


def _contradictory(answers: list[MeasureResult]) -> MeasureResult:
    said = ", ".join(f"{answer.device} reports that it {_said(answer)}" for answer in answers)
    message = f"untrusted devices disagree about the model: {said}"
    return MeasureResult(fault=DeviceFault.BROKEN, message=message)


def _verdict(result: MeasureResult) -> tuple[Status, ...]:
    return tuple(outcome.status for outcome in result.results)


def _time(result: MeasureResult) -> float:
    return max((outcome.undisturbed_ns for outcome in result.results), default=0.0)


def _said(result: MeasureResult) -> str:
    """Return a phrase on the model for a message: `is ok`, or `is` and the status of the first
    failure in the result."""
    failed = (outcome.status for outcome in result.results if outcome.status is not Status.OK)
    return f"is {next(failed, Status.OK)}"
