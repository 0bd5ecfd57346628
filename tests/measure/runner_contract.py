"""The guarantees of `farrier.measure.Runner` as tests, for every runner that there is.

A module of tests imports the class and subclasses it; what `pytest` collects there is the contract.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
import time

import pytest

from farrier.measure import Blobs, Runner
from farrier_device.measurement import (
    Argument,
    Candidate,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    TimingPolicy,
)
from tests.rpc_device.children import measuring_processes
from tests.rpc_device.doubling import Doubling, linked_kernels

QUICK = TimingPolicy(min_repeats=3, min_time_s=0.001, timeout_s=5.0)
MISSING = "5e" * 32


class RunnerContract:
    """The contract of every Runner. A subclass provides `runner`, which ends with the test, and
    `blobs`, the store of a batch's blobs; the runner's device measures one batch at a time."""

    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError

    @pytest.fixture
    def blobs(self) -> Blobs:
        raise NotImplementedError

    def left_behind(self) -> list[str]:
        """Describe what the runners of this test started and did not end."""
        raise NotImplementedError

    @pytest.fixture
    def doubling(self, blobs: Blobs) -> Doubling:
        return Doubling(blobs.put, seed=7)

    @pytest.fixture
    def measure(self, runner, blobs):
        """`measure(*candidates, library=…, policy=…, reference=…)`: one batch, and what every
        answer holds."""

        def call(
            *candidates, library=None, policy=QUICK, reference=None, cancelled=None
        ) -> MeasureResult:
            library = blobs.put(linked_kernels()) if library is None else library
            request = MeasureRequest((CodeObject(library),), candidates, policy, reference)
            begin = time.monotonic()
            result = runner.measure(request, blobs, cancelled)
            took = time.monotonic() - begin
            assert result.answers(request)
            assert min(result.run_s, result.transfer_s) >= 0
            assert result.run_s + result.transfer_s <= took
            if result.fault is None:
                assert len(result.results) == len(candidates)
                assert result.device
                assert "rlimits" in result.sandbox
            else:
                assert result.results == ()
                assert result.message
            for outcome in result.results:
                assert bool(outcome.samples_ns) is (outcome.status is Status.OK)
                assert bool(outcome.message) is (outcome.status is not Status.OK)
            return result

        return call

    # One result a candidate, in the request's order.

    def test_a_right_candidate_is_timed_by_the_policy(self, measure, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=7, max_repeats=9)
        (only,) = measure(doubling.candidate("right", cold=True), policy=policy).results
        assert only.status is Status.OK, only.message
        assert 7 <= len(only.samples_ns) <= 9
        assert min(only.samples_ns) > 50  # A call that did its work takes 50 ns at least.
        assert only.max_error == 0.0

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_candidate_runs_on_the_policys_threads(self, measure, doubling, threads):
        policy = dataclasses.replace(QUICK, threads=threads)
        (only,) = measure(doubling.candidate("right_in_parallel"), policy=policy).results
        assert only.status is Status.OK, only.message

    def test_results_stand_in_the_requests_order(self, measure, doubling):
        symbols = ["wrong", "right", "code_three", "right", "no_such", "wrong"]
        results = measure(*map(doubling.candidate, symbols)).results
        assert [result.status for result in results] == [
            Status.WRONG,
            Status.OK,
            Status.CRASHED,
            Status.OK,
            Status.REJECTED,
            Status.WRONG,
        ]

    def test_an_empty_batch_has_an_empty_answer(self, measure):
        result = measure()
        assert (result.fault, result.results) == (None, ())

    def test_a_candidate_in_parts_has_samples_of_each(self, measure, doubling):
        part = Launch("right", ((0, 0), (1, 0), (2, 0)))
        parted = dataclasses.replace(doubling.candidate("right"), parts=(part, part))
        (only,) = measure(parted).results
        assert only.status is Status.OK, only.message
        assert len(only.parts_ns) == 2
        assert only.samples_ns == tuple(a + b for a, b in zip(*only.parts_ns, strict=True))

    def test_prepare_runs_before_the_first_call(self, measure, doubling):
        prepared = doubling.candidate("needs_prepare", prepare="prepare")
        results = measure(prepared, doubling.candidate("needs_prepare")).results
        assert [result.status for result in results] == [Status.OK, Status.CRASHED]

    def test_a_batch_is_measured_again_as_the_first_time(self, measure, doubling):
        candidates = [*map(doubling.candidate, ["right", "wrong"])]
        for _ in range(3):
            results = measure(*candidates).results
            assert [result.status for result in results] == [Status.OK, Status.WRONG]

    # Nothing that a candidate does raises, or touches the candidates after it.

    @pytest.mark.parametrize(
        ("symbol", "status", "words"),
        [
            ("wrong", Status.WRONG, ""),
            ("accumulating", Status.WRONG, "later"),
            ("crash", Status.CRASHED, "SIGSEGV"),
            ("code_three", Status.CRASHED, "returned 3"),
            ("leave", Status.CRASHED, "exited with 5"),
            ("hang", Status.TIMEOUT, "1.5 s"),
            ("no_such", Status.REJECTED, "no_such"),
        ],
    )
    def test_a_failure_is_the_candidates_own(self, measure, doubling, symbol, status, words):
        policy = dataclasses.replace(QUICK, timeout_s=1.5)
        symbols = ["right", symbol, "right"]
        before, failed, after = measure(*map(doubling.candidate, symbols), policy=policy).results
        assert failed.status is status
        assert words in failed.message
        assert (before.status, after.status) == (Status.OK, Status.OK)

    def test_arguments_that_cannot_be_made_reject_their_candidate(self, measure, doubling):
        good = doubling.candidate("right")
        vast = dataclasses.replace(good, args=(*good.args, Argument(Role.SCRATCH, 1 << 46)))
        short = dataclasses.replace(
            good, args=(dataclasses.replace(good.args[0], nbytes=8), *good.args[1:])
        )
        results = measure(vast, short, good).results
        assert [r.status for r in results] == [Status.REJECTED, Status.REJECTED, Status.OK]

    def test_what_is_no_library_rejects_every_candidate(self, measure, blobs, doubling):
        library = blobs.put(b"\x7fELF and no more")
        result = measure(*map(doubling.candidate, ["right", "wrong"]), library=library)
        assert [outcome.status for outcome in result.results] == [Status.REJECTED] * 2

    # A fault of the device is a field, and says nothing about the candidates.

    def test_a_machine_that_drifts_has_no_results(self, measure, doubling):
        policy = dataclasses.replace(QUICK, max_drift=-1.0)  # No machine can hold it.
        good = doubling.candidate("right")
        result = measure(good, policy=policy, reference=good)
        assert result.fault is DeviceFault.DRIFTED
        assert "%" in result.message

    def test_a_reference_that_fails_is_a_broken_device(self, measure, doubling):
        result = measure(doubling.candidate("right"), reference=doubling.candidate("wrong"))
        assert result.fault is DeviceFault.BROKEN
        assert "reference" in result.message

    def test_what_spoils_the_process_is_the_candidates_own(self, measure, doubling):
        """Neither the device's, nor that of the candidate that crashes for it."""
        policy = dataclasses.replace(QUICK, max_drift=1e6)
        symbols = ["right", "wrong", "spoil_1", "by_mark", "right"]
        candidates = map(doubling.candidate, symbols)
        result = measure(*candidates, policy=policy, reference=doubling.candidate("by_mark"))
        assert result.fault is None, result.message
        statuses = [outcome.status for outcome in result.results]
        ok = Status.OK
        assert statuses == [ok, Status.WRONG, Status.CRASHED, ok, ok]
        assert "the reference kernel failed after it" in result.results[2].message

    def test_a_steady_machine_leaves_the_reference_out_of_the_results(self, measure, doubling):
        policy = dataclasses.replace(QUICK, max_drift=1e6)
        good = doubling.candidate("right")
        result = measure(good, policy=policy, reference=good)
        assert result.fault is None, result.message
        assert [outcome.status for outcome in result.results] == [Status.OK]

    @pytest.mark.parametrize("place", ["library", "input", "expected"])
    def test_a_missing_blob_is_a_fault_that_names_it(self, measure, doubling, place):
        good = doubling.candidate("right")
        source, target, scratch = good.args
        if place == "input":
            source = dataclasses.replace(source, blob=MISSING)
        if place == "expected":
            target = dataclasses.replace(target, expected=MISSING)
        candidate = dataclasses.replace(good, args=(source, target, scratch))
        result = measure(candidate, library=MISSING if place == "library" else None)
        assert result.fault is DeviceFault.BROKEN
        assert MISSING in result.message
        assert measure(good).results[0].status is Status.OK

    def test_a_library_with_other_bytes_than_its_name_says_is_not_run(
        self, measure, blobs, doubling
    ):
        library = blobs.put(linked_kernels())
        blobs.path(library).write_bytes(linked_kernels() + b"\0")
        result = measure(doubling.candidate("right"), library=library)
        assert result.fault is DeviceFault.BROKEN
        assert library in result.message

    # Whoever asks, and when.

    def test_threads_that_ask_at_once_get_each_their_own_answer(self, measure, doubling):
        symbols = ["right", "wrong", "code_three", "no_such"]
        actual: dict[str, MeasureResult] = {}

        def ask(symbol: str) -> None:
            actual[symbol] = measure(doubling.candidate(symbol))

        measure(doubling.candidate("right"))  # Slow starts are over after this call.
        begin = time.monotonic()
        threads = [threading.Thread(target=ask, args=(symbol,)) for symbol in symbols]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - begin
        statuses = [actual[symbol].results[0].status for symbol in symbols]
        assert statuses == [Status.OK, Status.WRONG, Status.CRASHED, Status.REJECTED]
        # This device measures one batch at a time, and none counts the others' time.
        assert sum(result.run_s for result in actual.values()) <= took

    def test_a_batch_that_is_called_off_ends_soon(self, measure, doubling):
        measure(doubling.candidate("right"))  # Slow starts are over after this call.
        cancelled, patient = threading.Event(), dataclasses.replace(QUICK, timeout_s=10.0)
        threading.Timer(0.5, cancelled.set).start()
        begin = time.monotonic()
        result = measure(doubling.candidate("hang"), policy=patient, cancelled=cancelled)
        assert result.fault is DeviceFault.LOST
        assert "cancelled" in result.message
        assert time.monotonic() - begin < 8

    def test_large_blobs_are_carried(self, measure, blobs):
        words = bytes(range(256)) * (1 << 14)  # 4 MiB, which is more than a message or a page
        large = Argument(Role.INPUT, len(words), blob=blobs.put(words))
        (only,) = measure(Candidate((Launch("code_three"),), (large,))).results
        assert "returned 3" in only.message

    def test_close_ends_all_and_may_be_repeated(self, runner, measure, doubling):
        assert measure(doubling.candidate("crash"), doubling.candidate("right")).results
        runner.close()
        runner.close()
        assert self.left_behind() == []

    def test_a_runner_that_measured_nothing_closes(self, runner):
        runner.close()
        assert self.left_behind() == []


class ChildRunnerContract(RunnerContract):
    """The contract of a runner that starts children on this machine, each with a folder."""

    @pytest.fixture(autouse=True)
    def _before(self, monkeypatch, tmp_path):
        self.temporary = tmp_path / "temporary"
        self.temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        self._processes = measuring_processes(os.getpid())

    def left_behind(self) -> list[str]:
        processes = set(measuring_processes(os.getpid())) - set(self._processes)
        folders = self.temporary.glob("farrier-child-*")
        return [*map(str, processes), *(folder.name for folder in folders)]
