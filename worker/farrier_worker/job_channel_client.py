"""The job's end of its channel to the supervisor: the only way from a job's process to the farm.

Frames have the format of `farrier_device.wire`. The supervisor sends the first frame. Brackets
enclose files that are sent along with a frame.

    supervisor → job   {"kind": …, "name": …, "message": <path>, "data": {<location>: <path>},
                        "scratch": <path>, "secrets": [<path>…], "memory_bytes": n,
                        "room_wait_s": s, "reference_s": s, "attempt": n}, and what
                        `orders.py` adds for the kind
    job → supervisor   {"ready": <level of isolation>}
                       {"say": <event>}
                       {"ask": n, "add": <record>}              → {"answer": n}
                       {"ask": n, "define": [<definition>…]}    → {"answer": n}
                       {"ask": n, "find": [<task>, <target>]}   → {"answer": n, "lines": […]} …
                       {"ask": n, "records": true}              → the same
                       {"ask": n, "measure": <request>, "blobs": [<sha256>…]} [a file each]
                                                                → {"answer": n, "result": <result>}
                       {"drop": n}, what the question n asks for: it is answered all the same, soon
                       {"ask": n, "devices": true}              → {"answer": n, "devices": <number>}
                       {"ask": n, "builders": true}             → {"answer": n, "builders": n}
                       {"ask": n, "build": <message>}           → {"answer": n, "built": <answer>,
                                                                   "crashed": <how>}
                       {"ask": n, "sign": {<file>: <sha256>…}}  → {"answer": n, "signature": <JSON>}
                       {"ask": n, "finish": <report>} [the artifact]   → {"answer": n}
                       {"ask": n, "version": <report>} [the artifact]  → {"answer": n}
                       {"ask": n, "finish": true}               → {"answer": n}
                       {"ask": n, "fail": <problem>}            → {"answer": n}

A job whose artifact is to be available before the job ends adds versions of it, and finishes
without sending another. Only a compilation may add and find records, define their tasks, measure,
have builders compile, and have the farm sign the files of its artifact. Several questions may be
pending at once. A message to builders and its answer are texts defined in
`farrier.compile_pool.helper`; the answer has neither `built` nor `crashed` if no builder accepted
the message.

The answer with record lines is split over several frames; a frame without lines is the last. An
answer may instead be {"answer": n, "error": <problem>}. A problem contains {"code", "detail",
"hint"} of a FarrierError.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from farrier import progress
from farrier.artifact.signature import Signature
from farrier.errors import FarrierError, ServiceError, error_from_problem, problem_of
from farrier_device import wire

Answer: TypeAlias = dict[str, Any]

_GLANCE_S = 0.5  # The interval at which a waiting thread checks whether its question is cancelled.


class JobChannelClient:
    """The job's end of the channel, safe to share between threads. Every method that asks a
    question raises the FarrierError that the answer contains, and ServiceError if the supervisor
    has ended."""

    def __init__(self, sock: socket.socket) -> None:
        """Read the supervisor's first frame. Raises ClosedError."""
        self._sock = sock
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Answer | None]] = {}
        self._is_open = True
        self.order = wire.receive(sock)

    def ready(self, level: str) -> None:
        """Report the sandbox level that was reached, and start the thread that receives answers.
        That thread is in the same sandbox as the calling thread."""
        threading.Thread(target=self._listen, name="line", daemon=True).start()
        self._send({"ready": level})

    def say(self, event: progress.Event) -> None:
        """Report an event of the job, which the supervisor stores."""
        self._send({"say": progress.to_dict(event)})

    def ask(
        self,
        question: dict[str, Any],
        files: Sequence[int] = (),
        cancelled: threading.Event | None = None,
    ) -> Answer:
        """Send a question, with open files, and return its answer. If `cancelled` is set meanwhile,
        the supervisor is asked to drop the question, and its answer arrives soon."""
        return next(self.parts(question, files, cancelled))

    def parts(
        self,
        question: dict[str, Any],
        files: Sequence[int] = (),
        cancelled: threading.Event | None = None,
    ) -> Iterator[Answer]:
        """Send a question that has several answers, and yield them in order. The caller stops the
        iteration at the last answer."""
        number, answers = next(self._numbers), queue.SimpleQueue[Answer | None]()
        self._waiting[number] = answers
        try:
            if not self._is_open:
                raise _gone()
            self._send({"ask": number, **question}, files)
            while True:
                answer = self._answer(number, answers, cancelled)
                if answer is None:
                    raise _gone()
                if "error" in answer:
                    raise error_from_problem(answer["error"])
                yield answer
        finally:
            del self._waiting[number]

    def _answer(
        self,
        number: int,
        answers: queue.SimpleQueue[Answer | None],
        cancelled: threading.Event | None,
    ) -> Answer | None:
        """Return the next answer to the question `number`, or None if the supervisor has ended."""
        while cancelled is not None:
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=_GLANCE_S)
            if cancelled.is_set():
                self._send({"drop": number})
                break
        return answers.get()

    def sign(self, files: Mapping[str, str]) -> Signature:
        """Return the farm's signature of an artifact's files, from their sha256 digests. Raises
        StorageError."""
        return Signature.of_json(self.ask({"sign": dict(files)})["signature"].encode())

    def finish(self, artifact: int, report: dict[str, Any]) -> None:
        """End the job successfully, with the artifact in an open file. Raises StorageError."""
        self.ask({"finish": report}, [artifact])

    def add_version(self, artifact: int, report: dict[str, Any]) -> None:
        """Add the next version of the job's artifact, in an open file. Raises StorageError."""
        self.ask({"version": report}, [artifact])

    def finish_as_it_is(self) -> None:
        """End a job successfully whose artifact has been sent as versions. Raises StorageError."""
        self.ask({"finish": True})

    def fail(self, error: FarrierError) -> None:
        """End the job as failed, with an error."""
        self.ask({"fail": problem_of(error)})

    def _send(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        try:
            with self._sending:
                wire.send(self._sock, message)
                wire.send_files(self._sock, files)
        except wire.ClosedError:
            raise _gone() from None

    def _listen(self) -> None:
        try:
            while True:
                answer = wire.receive(self._sock)
                waiting = self._waiting.get(answer["answer"])
                if waiting is not None:  # Otherwise the question was dropped.
                    waiting.put(answer)
        except wire.ClosedError:
            self._is_open = False
            for waiting in list(self._waiting.values()):
                waiting.put(None)


def _gone() -> ServiceError:
    return ServiceError("the job's supervisor is gone")
