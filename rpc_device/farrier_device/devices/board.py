"""A board without an operating system as a measuring device: code and arguments are placed in its
free memory."""

from __future__ import annotations

import dataclasses
import itertools
import os
import weakref
from collections.abc import Iterator, Sequence

from farrier_device.blob import Blob
from farrier_device.boards.board import MOST_ARGUMENTS, MOST_REPEATS, Board
from farrier_device.boards.image import BoardImage, ImageError
from farrier_device.devices.device import Code, Device, DeviceError, Ticks
from farrier_device.measurement import Launch

_ALIGNMENT = 64  # Of arguments: that of a model's memory.
_INSTRUCTIONS = "instructions"


@dataclasses.dataclass(frozen=True, eq=False)  # It is known by itself: see `BoardDevice._rooms`.
class Room:
    """An allocated range of the board's memory, which is free again when the last reference to this
    object is dropped."""

    address: int
    nbytes: int


@dataclasses.dataclass(slots=True)
class Bound:
    """A call of an entry point with its arguments. On an emulated board, `ticks` caches the ticks
    of a call, which never vary."""

    entry: int
    places: Sequence[int]
    ticks: int = 0


class BoardDevice(Device[Room, Bound]):
    """A `Device` on a board. If the board does not answer, or code on it faults or hangs, the
    errors of `boards` are raised unchanged, because the runner then has to reset or check the
    board."""

    def __init__(self, board: Board, limit_s: float) -> None:
        """Create the device for a board on which each call may take at most `limit_s` seconds."""
        self._board = board
        self._limit_s = limit_s
        self._image: BoardImage | None = None
        self._rooms: weakref.WeakSet[Room] = weakref.WeakSet()
        self._failure = 0

    def load(self, code: Code, threads: int, pin: Sequence[int]) -> None:
        self.unload()
        if len(code) != 1:
            raise DeviceError(f"a board loads one image, not {len(code)} code objects")
        [(_, file)] = code
        try:
            image = BoardImage.of_bytes(os.pread(file, os.fstat(file).st_size, 0))
        except ImageError as error:
            raise DeviceError(str(error)) from None
        board = self._board
        if image.header.core != board.description.core:
            raise DeviceError(
                f"the code is for the core {image.header.core}, but {board.link.line.name} has "
                f"the core {board.description.core}"
            )
        if len(image.content) > board.nbytes:
            raise DeviceError(self._too_much(len(image.content)))
        board.write(board.begin, image.at(board.begin))
        self._image = image

    def unload(self) -> None:
        self._image = None

    def allocate(self, nbytes: int, position: int) -> Room:
        """Return the first free range of `nbytes` after the code image."""
        begin = self._end_of_image
        for room in sorted(self._rooms, key=lambda each: each.address):
            if room.address - begin >= nbytes:
                break
            begin = max(begin, _rounded(room.address + room.nbytes))
        if begin + nbytes > self._board.begin + self._board.nbytes:
            raise MemoryError(self._too_much(begin + nbytes - self._board.begin))
        room = Room(begin, nbytes)
        self._rooms.add(room)
        return room

    @property
    def _end_of_image(self) -> int:
        assert self._image is not None, "no code is loaded"
        return _rounded(self._board.begin + len(self._image.content))

    def _too_much(self, needed: int) -> str:
        return (
            f"the code and its arguments need {needed:,} bytes of RAM, but "
            f"{self._board.link.line.name} has {self._board.nbytes:,} free"
        )

    def clear(self, memory: Room, nbytes: int) -> None:
        self._board.clear(memory.address, nbytes)

    def copy_in(self, memory: Room, blob: Blob) -> None:
        self._board.write(memory.address, blob.view)

    def copy_out(self, memory: Room, nbytes: int) -> memoryview:
        return memoryview(self._board.read(memory.address, nbytes))

    def send(self, source: memoryview, memory: Room, offset: int) -> None:
        self._board.write(memory.address + offset, source)

    def receive(self, memory: Room, offset: int, target: memoryview) -> None:
        target[:] = self._board.read(memory.address + offset, len(target))

    def bind(self, launch: Launch, places: Sequence[tuple[Room, int]]) -> Bound:
        assert self._image is not None, "no code is loaded"
        if len(places) > MOST_ARGUMENTS:
            raise DeviceError(f"{launch.symbol} has more than {MOST_ARGUMENTS} arguments")
        try:
            entry = self._board.begin + self._image.entry(launch.symbol)
        except ImageError as error:
            raise DeviceError(str(error)) from None
        return Bound(entry, [memory.address + offset for memory, offset in places])

    def launch(self, bound: Bound) -> None:
        code, _ = self._board.call(bound.entry, bound.places, 1, self._limit_s)
        self._failure = self._failure or code

    def synchronize(self) -> int:
        code, self._failure = self._failure, 0
        return code

    def time(self, steps: Sequence[Bound], repeats: int, cold: Sequence[tuple[Room, int]]) -> Ticks:
        # A board has no caches for arguments to be in.
        if self._board.description.counts == _INSTRUCTIONS:
            for step in steps:
                step.ticks = step.ticks or next(self._timed(step, 1))
            return [[step.ticks] * repeats for step in steps]
        if len(steps) == 1:
            return [[*self._timed(steps[0], repeats)]]
        rounds = [[next(self._timed(step, 1)) for step in steps] for _ in range(repeats)]
        return [list(each) for each in zip(*rounds, strict=True)]

    def _timed(self, step: Bound, repeats: int) -> Iterator[int]:
        for begin in range(0, repeats, MOST_REPEATS):
            count = min(MOST_REPEATS, repeats - begin)
            code, ticks = self._board.call(step.entry, step.places, count, self._limit_s)
            if code:
                raise DeviceError(f"returned code {code}")
            yield from itertools.islice(ticks, count)

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return [max(1, round(tick * self._board.description.tick_ns)) for tick in ticks]

    def close(self) -> None:
        self.unload()


def _rounded(address: int) -> int:
    return -(-address // _ALIGNMENT) * _ALIGNMENT
