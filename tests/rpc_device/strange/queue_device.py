"""A device with a memory space and a queue of its own, for code of the kind "queue".

Its code is JSON: what each entry point multiplies its first argument by, or the code with which it
fails. An address says nothing to the host, and a launch runs when the thread of the device comes to
it: who copies nothing, or does not wait, has wrong results.
"""

from __future__ import annotations

import array
import json
import os
import queue
import struct
import threading
import time

from farrier_device import devices
from farrier_device.devices.device import Device, DeviceError
from farrier_device.profiles import Profile

KIND = "queue"
PROFILE = Profile("queue", files=("/dev/null",), bounds_addresses=False)
_LATENCY_S = 0.002  # A launch takes that long, so that a missing wait shows.


class QueueDevice(Device[int, tuple]):
    """Memories are numbers of this device, bound launches a factor and places."""

    def __init__(self) -> None:
        """Open the device file, as a driver does, from within the sandbox."""
        self._file = os.open("/dev/null", os.O_RDWR)
        self._space: dict[int, bytearray] = {}
        self._entries: dict[str, dict[str, float]] = {}
        self._orders: queue.Queue = queue.Queue()
        self._failures: list[int] = []
        self.paused = threading.Lock()  # Whoever holds it keeps the queue as it is.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def load(self, code, threads, pin):
        self.unload()
        for _, file in code:
            try:
                self._entries |= json.loads(os.pread(file, os.fstat(file).st_size, 0))
            except ValueError:
                raise DeviceError("this is not code of a queue") from None

    def unload(self):
        self._wait()
        self._entries = {}

    def allocate(self, nbytes, position):
        self._space[len(self._space)] = bytearray(b"\xaa" * nbytes)  # Never zero by itself.
        return len(self._space) - 1

    def clear(self, memory, nbytes):
        self._wait()
        self._space[memory][:nbytes] = bytes(nbytes)

    def copy_in(self, memory, blob):
        self._wait()
        staged = bytearray(blob.nbytes)
        blob.read_into(memoryview(staged))
        self._space[memory][: blob.nbytes] = staged

    def copy_out(self, memory, nbytes):
        self._wait()
        return memoryview(bytes(self._space[memory][:nbytes]))

    def send(self, source, memory, offset):
        self._orders.put((_copy, (self._space[memory], offset, source, 0, len(source))))

    def receive(self, memory, offset, target):
        self._orders.put((_copy, (target, 0, self._space[memory], offset, len(target))))

    def bind(self, launch, places):
        if launch.symbol not in self._entries:
            raise DeviceError(f"no entry point {launch.symbol!r}")
        return self._entries[launch.symbol], tuple(places)

    def launch(self, bound):
        self._orders.put((self._do, bound))

    def synchronize(self):
        self._wait()
        first = self._failures[0] if self._failures else 0
        self._failures.clear()
        return first

    def time(self, steps, repeats, cold):
        each = [[] for _ in steps]
        for _ in range(repeats):
            for samples, step in zip(each, steps, strict=True):
                begin = time.perf_counter_ns()
                self.launch(step)
                if code := self.synchronize():
                    raise DeviceError(f"returned code {code}")
                samples.append(time.perf_counter_ns() - begin)
        return each

    def ns_of(self, ticks):
        return [max(1, count) for count in ticks]

    def close(self):
        if self._thread.is_alive():
            self._orders.put(None)
            self._thread.join()
            os.close(self._file)

    def _wait(self):
        self._orders.join()

    def _run(self):
        while (order := self._orders.get()) is not None:
            time.sleep(_LATENCY_S)
            do, arguments = order
            with self.paused:
                do(*arguments)
            self._orders.task_done()

    def _do(self, entry, places):
        if code := entry.get("code"):
            self._failures.append(code)
            return
        (source, at), (target, to) = places[:2]
        room = min(len(self._space[source]) - at, len(self._space[target]) - to)
        values = array.array("f", bytes(self._space[source][at : at + room]))
        struct.pack_into(
            f"<{len(values)}f", self._space[target], to, *(v * entry["times"] for v in values)
        )


def _copy(target, to, source, at, nbytes):
    target[to : to + nbytes] = source[at : at + nbytes]


CODE = json.dumps(
    {"right": {"times": 2.0}, "wrong": {"times": 2.5}, "code_three": {"code": 3}}
).encode()


def register() -> None:
    """Add the kind to those of this process."""
    devices.KINDS[KIND] = devices.DeviceKind("queue_device:QueueDevice", PROFILE)
