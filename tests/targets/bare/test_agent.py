"""An emulated board behind its line: code that is right, faults, hangs or silences the board."""

from __future__ import annotations

import hashlib

import pytest

from farrier.errors import UsageError
from farrier.targets import parse_target
from farrier.targets.bare.backend import BACKEND
from farrier_device.boards.choice import BoardChoice
from farrier_device.boards.image import IMAGE, BoardImage, Header
from farrier_device.boards.line import LineGoneError
from farrier_device.measurement import (
    Argument,
    Candidate,
    CodeObject,
    Launch,
    MeasureRequest,
    Role,
    Status,
    TimingPolicy,
)
from farrier_device.runners.boards import BoardRunner
from tests.rpc_device.test_boards import Noise
from tests.targets.bare.test_models import lacks

# Functions in the instructions of each core: a store of 7 where the first argument points, an
# undefined instruction, an endless loop, and a jump into memory that is not there.
ARM = {
    "stores": "0068 0721 0160 0020 7047",
    "undefined": "00de",
    "loops": "fee7",
    "leaves": "0248 8046 c046 c047 0000 0000 f1ff ff3f",
}
RISCV = {
    "stores": "03250500 93057000 2320b500 13050000 67800000",
    "undefined": "00000000",
    "loops": "6f000000",
    "leaves": "37f5ffff 67000500",
}
CODE = {"mps2-an386": ARM, "mps2-an505": ARM, "mps3-an547": ARM, "qemu-rv32imac": RISCV}


class Files:
    def __init__(self, folder):
        self._folder = folder

    def put(self, data):
        name = hashlib.sha256(data).hexdigest()
        (self._folder / name).write_bytes(data)
        return name

    def path(self, name):
        return self._folder / name


def image_of(board):
    content, entries = b"", {}
    for name, text in CODE[board].items():
        entries[name] = len(content)
        code = bytes.fromhex(text.replace(" ", ""))
        content += code + bytes(-len(code) % 8)
    return BoardImage(Header(parse_target(board).tune, entries, {}), content)


@pytest.mark.slow
@pytest.mark.parametrize("board", CODE)
def test_code_that_goes_astray_is_a_result_and_the_board_goes_on(board, tmp_path):
    if why := lacks(board):
        pytest.skip(why)
    files = Files(tmp_path)
    code = files.put(image_of(board).to_bytes())
    seven = files.put((7).to_bytes(4, "little"))
    output = Argument(Role.OUTPUT, 4, "i32", expected=seven)
    names = ["stores", "undefined", "stores", "loops", "leaves", "stores"]
    request = MeasureRequest(
        (CodeObject(code, IMAGE),),
        tuple(Candidate((Launch(name),), (output,)) for name in names),
        TimingPolicy(timeout_s=0.05),
    )
    choice = BoardChoice(qemu=board)
    with BoardRunner(choice.opener(tmp_path, "landlock+seccomp"), name=board) as runner:
        first = runner.measure(request, files)
        assert first.fault is None, first.message
        assert first.emulated
        line, noise = runner.board.link.line, Noise(4, 40, 20)
        line.write = lambda data, send=line.write: send(noise(data))
        again = runner.measure(request, files)
        # On a busy machine an emulator may answer late, which is a retry, too.
        assert noise.done == 20
        assert runner.board.link.retries > 0
    good, fault, hang = Status.OK, Status.CRASHED, Status.TIMEOUT
    for result in (first, again):
        each = [answer.status for answer in result.results]
        assert each == [good, fault, good, hang, fault, good], result
        assert "the processor took the exception" in result.results[1].message


def test_a_board_without_a_program_for_agents_is_refused():
    with pytest.raises(UsageError, match="esp32-c3 has no program for an agent yet"):
        parse_target("esp32-c3").backend.firmware("esp32-c3")
    with pytest.raises(UsageError, match="rpi4 needs no program for an agent"):
        parse_target("rpi4").backend.firmware("rpi4")


def test_an_agent_without_the_program_of_its_board_says_so(tmp_path):
    with pytest.raises(LineGoneError, match=r"write it with `farrier firmware mps2-an386 -o .*`"):
        BoardChoice(qemu="mps2-an386", firmware=tmp_path).opener(tmp_path, "")


def test_the_core_of_a_damaged_artifact_is_named():
    why = BACKEND.why_not_here("thumbv7em", "cortex-m99", ())
    assert why == "no core of thumbv7em is called 'cortex-m99': the artifact is damaged"
