"""The arguments of the candidates of a batch: the blobs with their contents, and their memory on
the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farrier_device.blob import ArgumentError, Blob
from farrier_device.devices.device import AnyDevice
from farrier_device.measurement import Argument, Candidate, Launch, Role
from farrier_device.native import DTYPE_BYTES


class Arguments:
    """The device memory of the arguments, by position. Successive candidates reuse the memory,
    which grows as needed."""

    def __init__(self, device: AnyDevice) -> None:
        self._device = device
        # The memory of each position, with its size in bytes.
        self._memory: dict[int, tuple[Any, int]] = {}

    def fill(self, candidate: Candidate, blobs: Mapping[str, Blob]) -> None:
        """Copy the input blobs of a candidate into its arguments' memory, and set all other
        arguments to zero. Raises ArgumentError, MemoryError."""
        for position, argument in enumerate(candidate.args):
            _check(position, argument, blobs)
            memory = self._room(position, argument.nbytes)
            if argument.role is Role.INPUT and argument.blob is not None:
                self._device.copy_in(memory, blobs[argument.blob])
            else:
                self._device.clear(memory, argument.nbytes)

    def bound(self, candidate: Candidate, launch: Launch) -> Any:
        """Return a launch of the candidate, bound to the memory that `fill` has filled.
        `launch.args` selects the arguments; None selects all of the candidate's arguments in order.
        Raises ArgumentError for a missing argument or an offset outside of it, DeviceError."""
        places = launch.args
        if places is None:
            places = tuple((position, 0) for position in range(len(candidate.args)))
        for position, offset in places:
            if not 0 <= position < len(candidate.args):
                raise ArgumentError(
                    f"{launch.symbol} uses argument {position}, which the candidate does not have"
                )
            if not 0 <= offset <= candidate.args[position].nbytes:
                raise ArgumentError(
                    f"{launch.symbol} uses byte {offset} of argument "
                    f"{position}, which is outside of the argument"
                )
        return self._device.bind(
            launch, [(self._memory[position][0], offset) for position, offset in places]
        )

    def cold(self, candidate: Candidate) -> list[tuple[Any, int]]:
        """Return a pair (memory, size in bytes) for each `cold` argument of the candidate, which
        has to be flushed out of the caches before a timed call."""
        return [
            (self._memory[position][0], argument.nbytes)
            for position, argument in enumerate(candidate.args)
            if argument.cold
        ]

    def max_error(self, candidate: Candidate, blobs: Mapping[str, Blob]) -> float | None:
        """Return the largest error of the candidate's outputs compared with the expected blobs;
        None if no output has an expected blob. Raises DeviceError."""
        errors = [
            self._device.max_error(self._memory[position][0], argument, blobs[argument.expected])
            for position, argument in enumerate(candidate.args)
            if argument.expected is not None
        ]
        return max(errors, default=None)

    def _room(self, position: int, nbytes: int) -> Any:
        memory, room = self._memory.get(position, (None, -1))
        if room < nbytes:
            self._memory.pop(position, None)
            memory = None  # Free the old memory before allocating the new one.
            memory = self._device.allocate(nbytes, position)
            self._memory[position] = memory, nbytes
        return memory


def _check(position: int, argument: Argument, blobs: Mapping[str, Blob]) -> None:
    if argument.dtype not in DTYPE_BYTES:
        raise ArgumentError(f"argument {position} has an unknown dtype {argument.dtype!r}")
    for sha256 in filter(None, (argument.blob, argument.expected)):
        if sha256 not in blobs:
            raise ArgumentError(f"blob {sha256} of argument {position} is missing")
        held = blobs[sha256].nbytes
        if held != argument.nbytes:
            raise ArgumentError(
                f"argument {position} has {argument.nbytes} bytes, but its blob {sha256} has {held}"
            )
