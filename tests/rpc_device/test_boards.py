"""Boards on a line: the program that stays there, compiled for this machine, behind a line that
changes and loses bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.targets.bare.c_compiler import FIRMWARE
from farrier_device import codec
from farrier_device.boards.board import Board, Description, FaultError, HungError, UnfitError
from farrier_device.boards.frames import Frame, Reader, encode
from farrier_device.boards.image import BoardImage, Header, ImageError
from farrier_device.boards.line import LineGoneError
from farrier_device.boards.link import Link, RefusedError, SilentError
from farrier_device.boards.serial_line import SerialLine
from farrier_device.describe import MachineDescription
from farrier_device.measurement import CodeObject, DeviceFault, MeasureRequest
from farrier_device.runners.boards import BoardRunner
from farrier_device.sandbox import SandboxError

BASE, BYTES = 0x20000000, 1 << 16
COUNTS, FAULTS, HANGS, FAILS = (BASE + offset for offset in (0, 2, 4, 6))
MACHINE = MachineDescription("thumbv7em", "mps2-an386", ("dsp", "m"), 1, 1, 1, 0, BYTES, True)
DESCRIPTION = json.dumps(codec.encode(Description(MACHINE, "cortex-m4", 12.5, "instructions")))
CHANGES = 1000


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler for this machine is missing, such as Debian's gcc")
    folder = tmp_path_factory.mktemp("resident")
    (folder / "program.h").write_text(f"#define DESCRIPTION {json.dumps(DESCRIPTION)}\n")
    source = os.path.join(os.path.dirname(__file__), "resident.c")
    words = [compiler, "-O1", "-include", "program.h", "-I.", f"-I{FIRMWARE}"]
    (folder / "ticks.h").write_text(
        "#pragma once\n#include <stdint.h>\n"
        "static inline uint32_t ticks(void) { static uint32_t now; return now += 7; }\n"
    )
    (folder / "resident_here.c").write_bytes((FIRMWARE / "resident.c").read_bytes())
    words += [source, "resident_here.c", FIRMWARE / "frames.c", "-o", "resident"]
    subprocess.run(words, cwd=folder, check=True)
    return folder / "resident"


class ProcessLine:
    """A line to the program in a process. `changed` turns bytes that are sent, and bytes that
    come, into the ones that arrive."""

    name = "the board"
    bytes_a_second = float("inf")

    def __init__(self, program, changed=bytes):
        self._changed = changed
        self.sock, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen([program], stdin=theirs, stdout=theirs)

    def write(self, data):
        try:
            self.sock.sendall(self._changed(bytes(data)))
        except OSError:
            raise LineGoneError("the board is unplugged") from None

    def read(self, within_s):
        if not select.select((self.sock,), (), (), within_s)[0]:
            return b""
        with contextlib.suppress(ConnectionResetError):
            data = self.sock.recv(4096)
            if data:
                return self._changed(data)
        raise LineGoneError("the board is unplugged")

    def reset(self):
        pass

    def close(self):
        self.sock.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def line(program):
    line = ProcessLine(program)
    yield line
    line.close()


class Noise:
    """Drops or changes a byte in `every` on average, `most` of them in all."""

    def __init__(self, seed, every, most):
        self._random = random.Random(seed)
        self._every = every
        self._left = most
        self.done = 0

    def __call__(self, data):
        kept = bytearray()
        for byte in data:
            if self.done == self._left or self._random.randrange(self._every):
                kept.append(byte)
                continue
            self.done += 1
            if self._random.randrange(2):
                kept.append(byte ^ self._random.randrange(1, 256))
        return bytes(kept)


@given(st.integers(0, 2**32 - 2), st.binary(max_size=1032), st.integers(1, 999))
def test_a_frame_is_read_back_however_it_comes_in(number, body, size):
    data = encode(Frame(number, "W", body))
    assert 0 not in data[1:-1]
    reader = Reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [frame for piece in pieces for frame in reader.frames(piece)] == [
        Frame(number, "W", body)
    ]


@given(st.binary(min_size=1, max_size=300), st.integers(0), st.integers(1, 255))
def test_no_frame_with_a_changed_byte_is_taken(body, place, change):
    data = bytearray(encode(Frame(5, "W", body)))
    data[1 + place % (len(data) - 2)] ^= change
    assert not any(Reader().frames(bytes(data)))


def test_the_program_and_the_agent_agree_on_frames_of_every_length(line):
    board = Board(Link(line))
    assert board.description.machine == MACHINE
    content = random.Random(1)
    for length in (1, 2, 253, 254, 255, 256, 508, 509, 1028, 1029, 3000):
        for data in (content.randbytes(length), bytes(length), b"\1" * length):
            board.write(BASE + 8, data)
            assert board.read(BASE + 8, length) == data
            assert board.checksum(BASE + 8, length) == zlib.crc32(data)
    assert board.link.retries == 0


def test_a_changed_or_lost_byte_costs_a_retry_at_most_and_no_operation_is_done_twice(program):
    noise = Noise(seed=3, every=300, most=CHANGES)
    line = ProcessLine(program)
    board = Board(Link(line, first_s=0.02, quiet_s=0.002))
    line._changed = noise
    calls, content = 0, random.Random(2)
    expected = bytearray(64)
    board.clear(BASE + 64, 1)
    try:
        while noise.done < CHANGES:
            expected = content.randbytes(64)
            board.write(BASE + 128, expected)
            assert board.call(COUNTS, [BASE + 64], 1, 1.0) == (0, (7,))
            calls += 1
            assert board.read(BASE + 128, 64) == expected
            assert board.read(BASE + 64, 1)[0] == calls % 256
    finally:
        line.close()
    assert CHANGES / 4 < board.link.retries <= CHANGES


def test_code_that_faults_hangs_or_fails_is_told_and_the_board_goes_on(line):
    board = Board(Link(line))
    for _ in range(2):
        with pytest.raises(FaultError, match="exception 3 at 0x1234"):
            board.call(FAULTS, [], 1, 1.0)
        with pytest.raises(HungError, match=r"did not return within 0\.5 s"):
            board.call(HANGS, [], 1, 0.5)
        code, ticks = board.call(FAILS, [], 5, 1.0)
        assert (code, len(ticks)) == (-7, 1)
        assert board.call(COUNTS, [BASE + 64], 5, 1.0) == (0, (7,) * 5)
    assert board.read(BASE + 64, 1) == bytes([10])


def test_what_a_board_refuses_is_a_sentence(line):
    board = Board(Link(line))
    for operation, body, why in (
        ("?", b"", "has no such operation"),
        ("R", bytes(8), "not of the free memory"),
        ("C", bytes(3), "cut short"),
        ("C", BASE.to_bytes(4, "little") + bytes(8), "too many repeats"),
    ):
        with pytest.raises(RefusedError, match=why):
            board.link.ask(operation, body)


def test_a_serial_port_is_a_line_and_one_that_is_unplugged_says_so(program):
    ours, theirs = os.openpty()
    path = os.ttyname(theirs)
    serial = SerialLine(path, 115200)
    process = subprocess.Popen([program], stdin=ours, stdout=ours)
    try:
        board = Board(Link(serial))
        data = bytes(range(256)) * 4
        board.write(BASE, data)
        assert board.read(BASE, len(data)) == data
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
    for _ in range(2):
        with pytest.raises(
            LineGoneError, match=f"the board on {path} is unplugged or switched off"
        ):
            board.read(BASE, 4)
    for baud in (12345, 0, -1):
        with pytest.raises(LineGoneError, match=f"not support a speed of {baud} baud"):
            SerialLine(path, baud)
    with pytest.raises(LineGoneError, match="/dev/nothing: No such file"):
        SerialLine("/dev/nothing", 115200)


class Greeting:
    """A line to a board that answers each question with the same body."""

    name = "the board"
    bytes_a_second = float("inf")

    def __init__(self, body):
        self._body, self._answer = body, b""

    def write(self, data):
        [question] = Reader().frames(data)
        self._answer = encode(question._replace(body=self._body))

    def read(self, within_s):
        return self._answer


@pytest.mark.parametrize(
    ("head", "description", "why"),
    [
        ((1, 1024, BASE, BYTES), "[" * 60_000, "its description is not JSON"),
        ((1, 1024, BASE, BYTES), "{}", "does not run Farrier's program"),
        ((1, 1024, BASE, 0xFFFFFFFF), DESCRIPTION, "free memory at an unsupported address"),
        ((1, 1024, BASE + 4, BYTES), DESCRIPTION, "free memory at an unsupported address"),
        ((1, 4, BASE, BYTES), DESCRIPTION, "accepts at most 4 bytes"),
        ((2, 1024, BASE, BYTES), DESCRIPTION, "has version 2"),
    ],
)
def test_a_greeting_that_fits_no_board_is_refused(head, description, why):
    with pytest.raises(UnfitError, match=why):
        Board(Link(Greeting(struct.pack("<BHII", *head) + description.encode())))


class Silent(ProcessLine):
    def read(self, within_s):
        threading.Event().wait(min(within_s, 0.001))
        return b""


def test_a_board_that_lies_is_silent_or_unplugged_is_refused_in_a_sentence(program):
    other = pytest.raises(UnfitError, match="reports the name mps2-an386, but --board is nrf52840")
    with BoardRunner(lambda: ProcessLine(program), name="nrf52840") as runner, other:
        runner.machine()
    line = ProcessLine(program)
    with BoardRunner(lambda: line) as runner:
        assert runner.emulated
        line.process.kill()
        with pytest.raises(SandboxError, match="the board is unplugged"):
            runner.sandbox_level()
    silent = Silent(program)
    with pytest.raises(SilentError, match="the board does not answer"):
        Link(silent, first_s=0.001).ask("H")
    silent.close()
    noisy = ProcessLine(program, lambda data: data.replace(b"cortex-m4", b"cortex-m9"))
    with pytest.raises(SilentError):
        Board(Link(noisy, first_s=0.001, quiet_s=0.001))
    noisy.close()


def test_a_board_that_is_gone_is_no_fault_of_the_candidates(program):
    def gone():
        raise LineGoneError(
            "the board on /dev/ttyACM0 is unplugged or switched off: the connection is lost"
        )

    class NoBlobs:
        def path(self, sha256):
            raise LookupError(sha256)

    runner = BoardRunner(gone)
    result = runner.measure(MeasureRequest((CodeObject("0" * 64, "board-image"),), ()), NoBlobs())
    assert result.fault is DeviceFault.LOST
    assert "/dev/ttyACM0 is unplugged" in result.message


def test_an_image_that_is_damaged_is_refused():
    image = BoardImage(Header("cortex-m4", {"f": 0}, {"word": (4,)}), bytes(8))
    assert BoardImage.of_bytes(image.to_bytes()).at(0x20000000)[4:] == b"\0\0\0\x20"
    for data, why in (
        (b"", "not code for a board"),
        (b"{}\n", "not code for a board"),
        (image.to_bytes().replace(b"[4]", b"[5]"), "beyond its end"),
        (image.to_bytes().replace(b'"word"', b'"ward"'), "unknown kind ward"),
    ):
        with pytest.raises(ImageError, match=why):
            BoardImage.of_bytes(data)
    with pytest.raises(ImageError, match="no entry point g"):
        image.entry("g")
