"""The guarantees of `devices.device.Device` as tests, for every device that there is.

A module of tests imports the class and subclasses it; what `pytest` collects there is the contract.
A subclass states `kind`, and returns code whose entry points are those of `kernels.ll`: `right`
doubles its first argument into its second, `code_three` fails with the code 3. Where launches have
no codes, `has_codes` is False. Arguments lie at multiples of its `alignment`.
"""

from __future__ import annotations

import array
import os

import pytest

from farrier_device.arguments import Arguments
from farrier_device.blob import Blob
from farrier_device.devices.device import Device, DeviceError
from farrier_device.measurement import (
    Argument,
    Candidate,
    CodeObject,
    Launch,
    Role,
    Status,
    TimingPolicy,
)
from farrier_device.measuring import Candidates
from tests.rpc_device.doubling import COUNT

_VALUES = [1e9, *(0.25 * (number % 97) - 8 for number in range(1, COUNT))]
X = array.array("f", _VALUES).tobytes()
Y = array.array("f", [2 * value for value in _VALUES]).tobytes()
NBYTES = len(X)


def in_file(data: bytes) -> int:
    """Return an open file with these bytes."""
    file = os.memfd_create("test")
    os.write(file, data)
    return file


class DeviceContract:
    """The guarantees of a device; a subclass has `kind`, `new` and `code`."""

    kind: str
    alignment = 64
    has_codes = True

    def new(self) -> Device:
        raise NotImplementedError

    @pytest.fixture
    def code(self) -> bytes:
        raise NotImplementedError

    @pytest.fixture
    def device(self, code):
        device = self.new()
        file = in_file(code)
        device.load([(CodeObject("", self.kind), file)], 1, ())
        yield device
        device.close()
        device.close()
        os.close(file)

    @pytest.fixture
    def blob(self):
        blobs = []

        def of(data: bytes) -> Blob:
            blobs.append(Blob(in_file(data)))
            return blobs[-1]

        yield of
        for each in blobs:
            each.close()

    def doubled(self, device, blob, symbol="right", at=0):
        """Return memories of x and y, and a launch that doubles."""
        x, y = (device.allocate(at + NBYTES, position) for position in range(2))
        device.copy_in(x, blob(bytes(at) + X))
        device.clear(y, at + NBYTES)
        return x, y, device.bind(Launch(symbol), [(x, at), (y, at)])

    def test_what_is_copied_in_comes_out(self, device, blob):
        memory = device.allocate(2 * NBYTES, 0)
        device.clear(memory, 2 * NBYTES)
        device.copy_in(memory, blob(X))
        assert bytes(device.copy_out(memory, 2 * NBYTES)) == X + bytes(NBYTES)
        device.clear(memory, 4)
        assert bytes(device.copy_out(memory, NBYTES)) == bytes(4) + X[4:]

    def test_what_is_sent_is_received(self, device):
        memory = device.allocate(8 + NBYTES, 0)
        device.clear(memory, 8)
        device.send(memoryview(X), memory, 8)
        received = bytearray(16 + NBYTES)
        device.receive(memory, 0, memoryview(received)[8:])
        assert device.synchronize() == 0
        assert received == bytes(16) + X

    def test_copies_and_launches_run_in_their_order(self, device, blob):
        x, y, bound = self.doubled(device, blob)
        received = bytearray(NBYTES)
        device.send(memoryview(Y), x, 0)
        device.launch(bound)
        device.receive(y, 0, memoryview(received))
        device.launch(device.bind(Launch("right"), [(y, 0), (x, 0)]))
        device.receive(x, 4, memoryview(received)[4:])
        assert device.synchronize() == 0
        values = array.array("f", X)
        assert list(memoryview(received).cast("f")) == [
            4 * values[0],
            *(8 * value for value in values[1:]),
        ]

    def test_a_launch_has_run_after_a_wait(self, device, blob):
        _, y, bound = self.doubled(device, blob)
        device.launch(bound)
        assert device.synchronize() == 0
        assert bytes(device.copy_out(y, NBYTES)) == Y

    def test_a_copy_sees_the_launches_before_it(self, device, blob):
        _, y, bound = self.doubled(device, blob)
        device.launch(bound)
        assert bytes(device.copy_out(y, NBYTES)) == Y
        assert device.synchronize() == 0

    def test_launches_run_in_their_order(self, device, blob):
        _, y, first = self.doubled(device, blob)
        z = device.allocate(NBYTES, 2)
        second = device.bind(Launch("right"), [(y, 0), (z, 0)])
        for bound in (first, second):
            device.launch(bound)
        assert device.synchronize() == 0
        doubled_twice = [4 * value for value in array.array("f", X)]
        assert list(device.copy_out(z, NBYTES).cast("f")) == doubled_twice

    def test_arguments_lie_at_offsets(self, device, blob):
        at = self.alignment
        _, y, bound = self.doubled(device, blob, at=at)
        device.launch(bound)
        assert device.synchronize() == 0
        assert bytes(device.copy_out(y, at + NBYTES)) == bytes(at) + Y

    def check_codes(self):
        if not self.has_codes:
            pytest.skip("its launches have no codes")

    def test_a_wait_returns_the_first_failure_once(self, device, blob):
        self.check_codes()
        _, _, good = self.doubled(device, blob)
        _, _, bad = self.doubled(device, blob, "code_three")
        for bound in (good, bad, good):
            device.launch(bound)
        assert device.synchronize() == 3
        assert device.synchronize() == 0

    def test_each_step_of_each_round_is_timed(self, device, blob):
        x, y, bound = self.doubled(device, blob)
        ticks = device.time([bound, bound], 3, [(x, NBYTES)])
        assert [len(each) for each in ticks] == [3, 3]
        assert all(ns >= 1 for each in ticks for ns in device.ns_of(each))
        assert bytes(device.copy_out(y, NBYTES)) == Y

    def test_a_step_that_fails_ends_the_timing(self, device, blob):
        self.check_codes()
        _, _, bound = self.doubled(device, blob, "code_three")
        with pytest.raises(DeviceError, match="returned code 3"):
            device.time([bound], 2, ())

    def test_outputs_are_compared(self, device, blob):
        _, y, bound = self.doubled(device, blob)
        device.launch(bound)
        device.synchronize()
        argument = Argument(Role.OUTPUT, NBYTES)
        assert device.max_error(y, argument, blob(Y)) == 0
        off = array.array("f", [4e9, *(2 * value for value in _VALUES[1:])]).tobytes()
        assert device.max_error(y, argument, blob(off)) == 0.5

    def test_a_symbol_that_is_not_there(self, device, blob):
        with pytest.raises(DeviceError, match="no_such"):
            self.doubled(device, blob, "no_such")

    def test_code_that_is_none(self):
        device = self.new()
        file = in_file(b"no code at all")
        try:
            with pytest.raises(DeviceError):
                device.load([(CodeObject("", self.kind), file)], 1, ())
        finally:
            device.close()
            os.close(file)

    @pytest.mark.parametrize(
        ("launches", "status"),
        [(("right",), Status.OK), (("right", "code_three"), Status.CRASHED)],
    )
    def test_candidates_are_measured(self, device, blob, launches, status):
        if status is Status.CRASHED:
            self.check_codes()
        args = (
            Argument(Role.INPUT, NBYTES, blob="x"),
            Argument(Role.OUTPUT, NBYTES, expected="y", cold=True),
        )
        candidate = Candidate(tuple(map(Launch, launches)), args)
        policy = TimingPolicy(min_repeats=3, max_repeats=3, min_time_s=0.0)
        candidates = Candidates(device, policy, {"x": blob(X), "y": blob(Y)})
        result = candidates.measure(candidate, Arguments(device), lambda: None)
        assert result.status is status, result.message
        assert len(result.samples_ns) == (3 if status is Status.OK else 0)
        assert (result.code == 3) is (status is Status.CRASHED)
