"""Verification of a model's outputs by a trusted device, or by two devices that agree.

A device compares the outputs by itself, and times the model by its own clock, so one that nobody
vouches for could say anything. What it says counts once another device of the class says the same;
where there is none, the result says that it is `untrusted`.
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

_ASKED = 3  # devices beside the first, of which some may be busy, or disagree

Measure = Callable[[MeasurementTarget], MeasureResult]


class Confirmation:
    """A verification by devices of a place. Raises ServiceError if Redis is out of reach, and what
    measuring at the place raises."""

    def __init__(
        self, devices: Devices, place: MeasurementTarget, listener: progress.Listener
    ) -> None:
        self._devices = devices
        self._place = place
        self._listener = listener

    def of(self, measure: Measure) -> MeasureResult:
        """The result of a trusted device where one of the class answers, or one that two devices
        agree on, and of these the slower. A job for one device is measured on that alone.

        Devices that disagree, where no third one decides, are a fault: nobody knows who is right.
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
            agreeing = next((one for one in answers if _verdict(one) == _verdict(answer)), None)
            if agreeing is not None:
                return _agreed(agreeing, answer)
            answers.append(answer)
        if len(answers) > 1:
            return _contradictory(answers)
        return dataclasses.replace(first, untrusted=True)

    def _of_trusted(self, measure: Measure) -> MeasureResult | None:
        """The result of a trusted device; None where none answers."""
        its_class = self._place.device_class
        for device in self._devices.measuring(its_class, trusted=True)[:_ASKED]:
            answer = self._asked(device, measure)
            # Somebody may have taken the trust back meanwhile.
            if answer is not None and self._is_trusted(answer):
                return answer
        return None

    def _others(self, first: str, measure: Measure) -> Iterator[MeasureResult]:
        """The answers of other devices of the class, of trusted ones before those of others."""
        if self._place.device:
            return
        its_class = self._place.device_class
        trusted = self._devices.measuring(its_class, trusted=True)
        devices = dict.fromkeys([*trusted, *self._devices.measuring(its_class)])
        for device in [one for one in devices if one != first][:_ASKED]:
            answer = self._asked(device, measure)
            if answer is not None:
                yield answer

    def _asked(self, device: str, measure: Measure) -> MeasureResult | None:
        """The answer of one device; None where it has left or has a fault."""
        with contextlib.suppress(DeviceAwayError):
            answer = measure(MeasurementTarget(self._place.device_class, device))
            if answer.fault is None:
                return answer
        return None

    def _is_trusted(self, answer: MeasureResult) -> bool:
        return self._devices.are_trusted([answer.device])[0]

    def _over(self, trusted: MeasureResult, others: list[MeasureResult]) -> MeasureResult:
        """The answer of a trusted device; who said something else is named."""
        for other in others:
            if _verdict(other) != _verdict(trusted):
                self._listener(
                    progress.Warned(
                        f"the device {other.device} says that the model {_said(other)}, and "
                        f"{trusted.device}, which is trusted, that it {_said(trusted)}"
                    )
                )
        return trusted


def _agreed(one: MeasureResult, other: MeasureResult) -> MeasureResult:
    """The slower of two results: who invents a time invents a short one."""
    slower, faster = sorted((one, other), key=_time, reverse=True)
    return dataclasses.replace(slower, confirmed_by=faster.device)


def _contradictory(answers: list[MeasureResult]) -> MeasureResult:
    said = ", ".join(f"{one.device} that it {_said(one)}" for one in answers)
    message = f"devices that nobody trusts disagree about the model: {said}"
    return MeasureResult(fault=DeviceFault.BROKEN, message=message)


def _verdict(result: MeasureResult) -> tuple[Status, ...]:
    return tuple(one.status for one in result.results)


def _time(result: MeasureResult) -> float:
    return max((one.undisturbed_ns for one in result.results), default=0.0)


def _said(result: MeasureResult) -> str:
    """`is ok`, or the first failure."""
    failed = (one.status for one in result.results if one.status is not Status.OK)
    return f"is {next(failed, Status.OK)}"
