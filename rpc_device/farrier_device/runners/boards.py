"""The runner for a board without an operating system, which survives faults and hangs of code on
the board."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from farrier_device.arguments import Arguments
from farrier_device.blob import Blob
from farrier_device.boards.board import Board, FaultError, HungError, UnfitError
from farrier_device.boards.choice import isolation
from farrier_device.boards.image import IMAGE
from farrier_device.boards.line import Line, LineGoneError
from farrier_device.boards.link import Link, RefusedError, SilentError
from farrier_device.closing import Closing
from farrier_device.describe import MachineDescription
from farrier_device.devices.board import BoardDevice
from farrier_device.devices.device import DeviceError
from farrier_device.measurement import (
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    MeasureRequest,
    MeasureResult,
    RivalResult,
    Status,
)
from farrier_device.measuring import Candidates
from farrier_device.runners.baselines import unraced
from farrier_device.runners.files import BatchFiles, BlobError, BlobSource
from farrier_device.runners.local import for_an_emulator
from farrier_device.runners.supervisor import CancelledError
from farrier_device.sandbox import SandboxError

_LOST = (SilentError, LineGoneError)


class BoardRunner(Closing):
    """A runner that measures one batch at a time on the board at the other end of a line; further
    callers wait.

    Code that faults or hangs is a result, after which the resident program continues. A board that
    does not answer is reset; if it then still does not answer, the batch has a device fault, and
    the next batch tries again.
    """

    kind = "board"
    kinds = frozenset({IMAGE})
    devices: int | None = None

    def __init__(
        self, open_line: Callable[[], Line], *, name: str = "", device: str = "local"
    ) -> None:
        """Create a runner whose line is opened by `open_line`, which may raise LineGoneError and
        SandboxError. With a `name`, the board has to report that name."""
        self._open_line = open_line
        self._name = name
        self._device = device
        self._level = ""
        self._board: Board | None = None
        self._cancelled = threading.Event()
        self._lock = threading.Lock()

    @property
    def board(self) -> Board:
        """The board, connected at the first access. Raises UnfitError, SilentError, LineGoneError,
        SandboxError."""
        if self._board is None:
            line = self._open_line()
            try:
                self._board = self._checked(Board(Link(line, self._glance)))
                self._level = isolation(line)
            except BaseException:
                line.close()
                raise
        return self._board

    @property
    def emulated(self) -> bool:
        return self.machine().emulated

    def machine(self) -> MachineDescription:
        """Return the description of the board as a measuring machine."""
        return self.board.description.machine

    def sandbox_level(self) -> str:
        """Return the isolation level of code on the board, which has to answer. Raises
        SandboxError."""
        with self._lock:
            try:
                self.board.greet()
            except (UnfitError, *_LOST) as error:
                self._give_up()
                raise SandboxError(str(error)) from None
        return self._level

    def measure(
        self,
        request: MeasureRequest,
        blobs: BlobSource,
        cancelled: threading.Event | None = None,
    ) -> MeasureResult:
        """Return the result of a batch. A failure of a candidate or of the board is a field of the
        result, not an exception. A batch whose `cancelled` is set ends within a second, with
        `DeviceFault.LOST`."""
        with self._lock:
            begin = time.monotonic()
            self._cancelled = cancelled or threading.Event()
            try:
                result = self._answer(request, blobs)
            except CancelledError:
                self._give_up()  # The call that was called off may run on.
                result = MeasureResult(fault=DeviceFault.LOST, message="the batch was cancelled")
            except BlobError as error:
                result = _broken(str(error), Blame.FARM)
            except (UnfitError, RefusedError, SandboxError, OSError) as error:
                self._give_up()
                result = _broken(str(error))
            except _LOST as error:
                self._give_up()
                result = MeasureResult(fault=DeviceFault.LOST, message=str(error))
            finally:
                self._cancelled = threading.Event()
            run_s = time.monotonic() - begin
        emulated = self._board is not None and self.emulated
        return dataclasses.replace(
            result, device=self._device, sandbox=self._level, run_s=run_s, emulated=emulated
        )

    def close(self) -> None:
        """Close the line; a second call does nothing."""
        with self._lock:
            self._give_up()

    def _answer(self, request: MeasureRequest, blobs: BlobSource) -> MeasureResult:
        if request.rival is not None:
            why = "no other engine runs on a board without an operating system"
            return unraced(request, RivalResult(request.rival.engine, message=why))
        if wrong := {code.kind for code in request.code} - self.kinds:
            return _broken(f"a board cannot run code of the kind {min(wrong)}", Blame.AGENT)
        request = for_an_emulator(request) if self.emulated else request
        with BatchFiles(request, blobs) as files, contextlib.ExitStack() as stack:
            count = len(request.code)
            held = {
                name: stack.enter_context(contextlib.closing(Blob(os.dup(file))))
                for name, file in zip(files.names, files.descriptors[count:], strict=True)
            }
            code = list(zip(request.code, files.descriptors[:count], strict=True))
            session = _Session(self.board, request, code, held)
            return MeasureResult(tuple(map(session.measure, request.candidates)))

    def _checked(self, board: Board) -> Board:
        says = board.description.machine.cpu
        if self._name and says != self._name:
            raise UnfitError(
                f"{board.link.line.name} reports the name {says}, but --board is {self._name}"
            )
        return board

    def _give_up(self) -> None:
        if self._board is not None:
            self._board.link.line.close()
            self._board = None

    def _glance(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError


class _Session:
    """The measurement of one batch on a board. Code and arguments are copied to the board's memory
    before the first candidate, and again after a reset of the board or a fault of code on it."""

    def __init__(
        self,
        board: Board,
        request: MeasureRequest,
        code: Sequence[tuple[CodeObject, int]],
        blobs: Mapping[str, Blob],
    ) -> None:
        self._board = board
        self._request = request
        self._code = code
        self._blobs = blobs
        self._measures: Callable[[Candidate], CandidateResult] | None = None

    def measure(self, candidate: Candidate) -> CandidateResult:
        """Return the result of a candidate. A candidate after which the board does not answer is
        tried a second time, because the line may be to blame. If the board does not answer after a
        reset either, the error of the line is raised."""
        for is_last in (False, True):
            try:
                return self._measured(candidate)
            except HungError as error:
                return self._astray(Status.TIMEOUT, str(error))
            except FaultError as error:
                return self._astray(Status.CRASHED, f"{candidate.name}: {error}")
            except _LOST as error:
                self._reset()
                if is_last:
                    why = f"{candidate.name}: {error}; the board was reset"
                    return self._astray(Status.CRASHED, why)
        raise AssertionError("the last try returns")

    def _measured(self, candidate: Candidate) -> CandidateResult:
        if self._measures is None:
            try:
                self._measures = self._begun()
            except DeviceError as unfit:
                return CandidateResult(Status.REJECTED, message=str(unfit))
        return self._measures(candidate)

    def _begun(self) -> Callable[[Candidate], CandidateResult]:
        policy = self._request.policy
        device = BoardDevice(self._board, policy.timeout_s)
        device.load(self._code, policy.threads, ())
        candidates, arguments = Candidates(device, policy, self._blobs), Arguments(device)
        return lambda candidate: candidates.measure(candidate, arguments, lambda: None)

    def _astray(self, status: Status, message: str) -> CandidateResult:
        self._measures = None
        return CandidateResult(status, message=message)

    def _reset(self) -> None:
        self._measures = None
        self._board.link.line.reset()
        self._board.greet()


def _broken(message: str, blame: Blame = Blame.DEVICE) -> MeasureResult:
    return MeasureResult(fault=DeviceFault.BROKEN, blame=blame, message=message)
