"""The two spaces: the table, whose memory is the host's, and the frame, which has a queue."""

from __future__ import annotations

import os
import queue
import threading

from abacus.program import Library
from farrier_device.devices.device import DeviceError
from farrier_device.devices.host_memory import HostMemory, WallClocked
from farrier_device.interpreter import Interpreter

FRAME = "frame"
KIND = "beads"


class _Beads(WallClocked):
    """The code and the clocks of either space."""

    def __init__(self, library=None):
        self._library = library

    def load(self, code, threads, pin):
        self.unload()
        try:
            (content,) = (os.pread(file, os.fstat(file).st_size, 0) for _, file in code)
            self._library = Library(content)
        except ValueError as error:
            raise DeviceError(f"these are no beads: {error}") from None

    def unload(self):
        self.synchronize()
        self._library = None

    def kernel(self, launch):
        if launch.symbol not in self._library.kernels:
            raise DeviceError(f"no kernel {launch.symbol}")
        return self._library.kernels[launch.symbol]

    def close(self):
        self.unload()


class Table(_Beads, HostMemory):
    """Calls return when they have run, and programs of calls alone are called as kernels are."""

    _code = 0

    def bind(self, launch, places):
        program = self._library.programs.get(launch.symbol)
        if program is None:
            return self.kernel(launch), [memory.view[at:] for memory, at in places]
        frame = Frame(self._library)
        interpreter = Interpreter(program, {"host": self, FRAME: frame})
        memories = [memory for memory, _ in places]
        count = len(program.memories)
        sizes = [memory.view.cast("q") for memory in memories[count:]]
        return interpreter.run, [memories[:count], *sizes]

    def launch(self, bound):
        function, arguments = bound
        self._code = self._code or function(*arguments)

    def synchronize(self):
        code, self._code = self._code, 0
        return code


class Frame(_Beads):
    """Beads that a thread moves when somebody waits for them, and not before. Memory is a list of
    its bytes, so the host cannot take it for its own; it is never zero by itself."""

    def __init__(self, library=None):
        super().__init__(library)
        self._orders = queue.Queue()
        self._awaited = threading.Event()
        self._failures = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def allocate(self, nbytes, position):
        return [bytearray(b"\xa5" * nbytes)]

    def clear(self, memory, nbytes):
        self._wait()
        memory[0][:nbytes] = bytes(nbytes)

    def copy_in(self, memory, blob):
        self._wait()
        blob.read_into(memoryview(memory[0])[: blob.nbytes])

    def copy_out(self, memory, nbytes):
        self._wait()
        return memoryview(memory[0])[:nbytes]

    def send(self, source, memory, offset):
        self._orders.put((_copy, (source, memoryview(memory[0])[offset : offset + len(source)])))

    def receive(self, memory, offset, target):
        self._orders.put((_copy, (memoryview(memory[0])[offset : offset + len(target)], target)))

    def bind(self, launch, places):
        return self.kernel(launch), [memoryview(memory[0])[at:] for memory, at in places]

    def launch(self, bound):
        self._orders.put(bound)

    def synchronize(self):
        self._wait()
        first = self._failures[0] if self._failures else 0
        self._failures.clear()
        return first

    def close(self):
        if self._thread.is_alive():
            super().close()
            self._orders.put(None)
            self._thread.join()

    def _wait(self):
        self._awaited.set()
        self._orders.join()
        self._awaited.clear()

    def _work(self):
        while (order := self._orders.get()) is not None:
            self._awaited.wait()
            function, arguments = order
            try:
                code = function(*arguments)
            except Exception as error:  # The host learns of it when it waits.
                print(f"beads fell: {error!r}")
                code = 1
            if code:
                self._failures.append(code)
            self._orders.task_done()


def _copy(source, target):
    target[:] = source
    return 0
