"""Run tests of this repository by the emulated root's pytest: the runtime, native code, the device
agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.boards.root import Root

FILES = (
    "tests/runtime",
    "tests/artifact/test_calls.py",
    "tests/artifact/test_container.py",
    "tests/frontends/onnx/model/test_bus_errors.py",
    "tests/targets/cpu/codegen/test_support_measure.py",
    "tests/targets/cpu/codegen/test_support_pool.py",
    "tests/rpc_device",
)

# What cannot hold there, by the reason. Names are as pytest's --deselect takes them.
_LEFT_OUT: Mapping[str, Sequence[str]] = {
    "qemu-user has no seccomp, no Landlock and no limit of memory (--system has)": (
        "tests/rpc_device/test_sandbox.py::TestSystemCalls",
        "tests/rpc_device/test_sandbox.py::TestProcess::test_limits",
        "tests/rpc_device/test_seccomp.py::TestEnclosed",
    ),
    "time and caches there are the emulator's": (
        "tests/targets/cpu/codegen/test_support_measure.py::test_flushed_memory_is_slower_to_read",
        "tests/targets/cpu/codegen/test_support_pool.py::test_a_helper_that_holds_up_the_caller_earns_it_a_rest",
        "tests/targets/cpu/codegen/test_support_pool.py::"
        "test_what_is_saved_is_remembered_up_to_the_longest_rest",
        "tests/rpc_device/test_local_runner.py::TestVerdicts::test_min_time_adds_samples",
        "tests/rpc_device/test_native.py::TestCall::test_overhead",
        "tests/rpc_device/test_native.py::TestTime::test_flush_makes_memory_cold",
    ),
    "the generator of the protocol's code is not installed there": (
        "tests/rpc_device/test_protocol.py::test_generated_code_is_that_of_the_proto",
    ),
}
_WORKERS = 2
LEVEL = """
from farrier_device.runners.local import ChildRunner
with ChildRunner() as runner: print("sandbox there:", runner.sandbox_level())
"""


def run(root: Root, files: Sequence[str], pattern: str, say: Callable[[str], None]) -> bool:
    """Run the tests in `files` whose names match pytest's -k `pattern`, and return whether they
    pass. Print the tests that are left out, with reasons."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-n", str(_WORKERS), "-m", "not slow"]
    if pattern:
        words += ["-k", pattern]
    for reason, names in _LEFT_OUT.items():
        say(f"left out, as {reason}: {', '.join(name.partition('::')[2] for name in names)}")
        words += [f"--deselect={name}" for name in names]
    root.start(["-c", LEVEL]).wait()
    return root.start([*words, *files]).wait() == 0
