"""ChildRunner: what every way for a candidate to go wrong looks like from outside."""

from __future__ import annotations

import dataclasses
import os
import signal
import tempfile
import threading
import time

import pytest

from farrier_device.blobstore import BlobStore
from farrier_device.measurement import (
    Argument,
    Blame,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    Role,
    Status,
    TimingPolicy,
    request_from_json,
    result_from_json,
    to_json,
)
from farrier_device.processes import is_running
from farrier_device.runners import children, supervisor
from farrier_device.runners.children import Child, Children
from farrier_device.runners.local import ChildRunner
from farrier_device.runners.reference import AroundReference
from farrier_device.runners.supervisor import Run
from tests.measure.runner_contract import ChildRunnerContract
from tests.rpc_device.children import measuring_processes

QUICK = TimingPolicy(min_repeats=3, min_time_s=0.001, timeout_s=5.0)


def request_of(folder, library, *candidates, policy=QUICK, reference=None):
    return MeasureRequest((CodeObject(folder.add(library)),), candidates, policy, reference)


class TestContract(ChildRunnerContract):
    @pytest.fixture
    def runner(self):
        with ChildRunner() as own:
            yield own

    @pytest.fixture
    def blobs(self, tmp_path):
        return BlobStore(tmp_path / "blobs", 1 << 24)


class TestVerdicts:
    def test_right_candidate_is_timed_by_the_policy(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=7, max_repeats=9)
        request = request_of(folder, library, doubling.candidate("right"), policy=policy)
        result = runner.measure(request, folder)
        (only,) = result.results
        assert only.status is Status.OK, only.message
        assert 7 <= len(only.samples_ns) <= 9
        assert all(50 < sample < 10_000_000 for sample in only.samples_ns)
        assert only.max_error == 0.0
        assert result.device == "local"
        assert "rlimits" in result.sandbox
        assert 0 < result.run_s < 60

    def test_min_time_adds_samples(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_time_s=0.01, max_repeats=100_000)
        request = request_of(folder, library, doubling.candidate("right"), policy=policy)
        (only,) = runner.measure(request, folder).results
        assert len(only.samples_ns) > 100  # A call takes well under 100 µs.

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_parallel_candidate(self, runner, folder, library, doubling, threads):
        policy = dataclasses.replace(QUICK, threads=threads)
        candidate = doubling.candidate("right_in_parallel", cold=True)
        request = request_of(folder, library, candidate, policy=policy)
        (only,) = runner.measure(request, folder).results
        assert only.status is Status.OK, only.message

    def test_each_fault_is_its_own(self, runner, folder, library, doubling):
        symbols = ["right", "wrong", "crash", "code_three", "no_such", "accumulating", "right"]
        request = request_of(folder, library, *map(doubling.candidate, symbols))
        results = runner.measure(request, folder).results
        assert [result.status for result in results] == [
            Status.OK,
            Status.WRONG,
            Status.CRASHED,
            Status.CRASHED,
            Status.REJECTED,
            Status.WRONG,
            Status.OK,
        ]
        assert results[1].max_error > 1e-4
        assert "SIGSEGV" in results[2].message
        assert "returned 3" in results[3].message
        assert "no_such" in results[4].message
        assert "later" in results[5].message
        assert not any(result.samples_ns for result in results[1:6])

    def test_a_code_comes_with_the_result(self, runner, folder, library, doubling):
        symbols = ["refuse", "code_three", "crash", "right"]
        request = request_of(folder, library, *map(doubling.candidate, symbols))
        result = runner.measure(request, folder)
        assert [outcome.code for outcome in result.results] == [-2, 3, 0, 0]
        assert "check 1 rejects the inputs" in result.results[0].message
        assert result_from_json(to_json(result)) == result

    def test_prepare_runs_before_the_first_call(self, runner, folder, library, doubling):
        with_it = doubling.candidate("needs_prepare", prepare="prepare")
        without = doubling.candidate("needs_prepare")
        bad = doubling.candidate("right", prepare="code_three")
        results = runner.measure(request_of(folder, library, with_it, without, bad), folder).results
        assert [result.status for result in results] == [
            Status.OK,
            Status.CRASHED,  # The scratch was therefore zeroed in between.
            Status.CRASHED,
        ]
        assert "code_three returned 3" in results[2].message

    def test_hanging_candidate_is_killed_in_time(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, timeout_s=2.5)
        names = ["hang", "right"]
        request = request_of(folder, library, *map(doubling.candidate, names), policy=policy)
        hung, after = runner.measure(request, folder).results
        assert hung.status is Status.TIMEOUT
        assert "2.5 s" in hung.message
        assert after.status is Status.OK

    def test_slow_candidate_ends_with_few_samples(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=50, timeout_s=3.5)
        request = request_of(folder, library, doubling.candidate("slow"), policy=policy)
        (only,) = runner.measure(request, folder).results
        assert only.status is Status.OK, only.message
        assert 1 <= len(only.samples_ns) < 50

    def test_candidate_that_leaves(self, runner, folder, library, doubling):
        names = ["leave", "right"]
        left, after = runner.measure(
            request_of(folder, library, *map(doubling.candidate, names)), folder
        ).results
        assert left.status is Status.CRASHED
        assert "exited with 5" in left.message
        assert after.status is Status.OK

    def test_empty_batch_and_empty_argument(self, runner, folder, library):
        assert runner.measure(request_of(folder, library), folder).results == ()
        empty = folder.add(b"")
        nothing = Candidate((Launch("code_three"),), (Argument(Role.INPUT, 0, blob=empty),))
        (only,) = runner.measure(request_of(folder, library, nothing), folder).results
        assert "returned 3" in only.message


class TestSpoiling:
    """A candidate is to blame for the state in which it leaves its process; the machine is well."""

    @pytest.mark.parametrize(
        ("spoiler", "reference", "how"),
        [
            ("spoil_1", "by_mark", "SIGSEGV"),
            ("spoil_2", "by_mark", "timeout"),
            ("spoil_3", "by_mark", "wrong"),
            ("spoil_pool", "right_in_parallel", "SIGSEGV"),
        ],
    )
    def test_the_one_that_spoils_it_is_found(
        self, runner, folder, library, doubling, spoiler, reference, how
    ):
        policy = dataclasses.replace(QUICK, max_drift=1e6, timeout_s=1.0)
        symbols = ["right", "right", spoiler, "crash", "right", spoiler, "right"]
        request = request_of(
            folder,
            library,
            *map(doubling.candidate, symbols),
            policy=policy,
            reference=doubling.candidate(reference),
        )
        result = runner.measure(request, folder)
        assert result.fault is None, result.message
        statuses = [outcome.status for outcome in result.results]
        # The first one's process ended with the crash, before anybody was hurt.
        expected = ["ok", "ok", "ok", "crashed", "ok", "crashed", "ok"]
        assert statuses == expected
        assert how in result.results[5].message

    def test_a_reference_that_fails_in_a_fresh_process_too_is_in_doubt(
        self, runner, folder, library, doubling
    ):
        reference = doubling.candidate("wrong")
        request = request_of(folder, library, doubling.candidate("right"), reference=reference)
        result = runner.measure(request, folder)
        assert (result.fault, result.blame) == (DeviceFault.BROKEN, Blame.LIBRARY)

    def test_a_process_that_cannot_clear_up_has_its_results(
        self, folder, library, doubling, monkeypatch
    ):
        monkeypatch.setattr(supervisor, "_CLEAR_UP_S", 1.0)
        policy = dataclasses.replace(QUICK, threads=2)
        symbols = ["right", "wrong", "spoil_end"]
        with ChildRunner(pin=False) as own:
            request = request_of(folder, library, *map(doubling.candidate, symbols), policy=policy)
            result = own.measure(request, folder)
            assert [outcome.status for outcome in result.results] == ["ok", "wrong", "ok"]
            good = request_of(folder, library, doubling.candidate("right"))
            assert own.measure(good, folder).results[0].status is Status.OK


class TestParts:
    """Candidates made of several entry points, each of which is timed."""

    def parted(self, doubling, *parts):
        return dataclasses.replace(doubling.candidate("right"), parts=parts)

    def test_each_part_is_timed_in_its_place(self, runner, folder, library, doubling):
        begin = Launch("right", ((0, 0), (1, 0), (2, 0)))
        # Here y and scratch change places.
        again = Launch("right_in_parallel", ((0, 0), (2, 0), (1, 0)))
        policy = dataclasses.replace(QUICK, min_repeats=7, max_repeats=7, threads=2)
        candidate = self.parted(doubling, begin, again)
        request = request_of(folder, library, candidate, policy=policy)
        assert request_from_json(to_json(request)) == request
        (only,) = runner.measure(request, folder).results
        assert only.status is Status.OK, only.message
        assert [len(part) for part in only.parts_ns] == [7, 7]
        assert only.samples_ns == tuple(a + b for a, b in zip(*only.parts_ns, strict=True))

    def test_a_part_writes_where_it_is_told(self, runner, folder, library, doubling):
        """A part that reads its own output spoils the output of `right`, which is noticed."""
        spoils = Launch("right", ((1, 0), (1, 0), (2, 0)))
        (only,) = runner.measure(
            request_of(folder, library, self.parted(doubling, spoils)), folder
        ).results
        assert only.status is Status.WRONG
        assert "later" in only.message

    @pytest.mark.parametrize(
        ("part", "status", "words"),
        [
            (Launch("code_three", ((0, 0),)), Status.CRASHED, "returned code 3"),
            (Launch("no_such", ()), Status.REJECTED, "no_such"),
            (Launch("right", ((0, 0), (3, 0))), Status.REJECTED, "argument 3"),
            (Launch("right", ((0, 0), (-1, 0))), Status.REJECTED, "argument -1"),
            (Launch("right", ((0, 4 * 1009 + 1), (1, 0))), Status.REJECTED, "byte 4037"),
        ],
    )
    def test_a_part_that_cannot_run(self, runner, folder, library, doubling, part, status, words):
        request = request_of(
            folder, library, self.parted(doubling, part), doubling.candidate("right")
        )
        only, after = runner.measure(request, folder).results
        assert (only.status, after.status) == (status, Status.OK)
        assert words in only.message


class TestArguments:
    def test_blob_of_another_size_rejects_only_its_candidate(
        self, runner, folder, library, doubling
    ):
        short = folder.add(doubling.x[:-4])
        good = doubling.candidate("right")
        first = dataclasses.replace(good.args[0], blob=short)
        bad = dataclasses.replace(good, args=(first, *good.args[1:]))
        rejected, ok = runner.measure(request_of(folder, library, bad, good), folder).results
        assert rejected.status is Status.REJECTED
        assert "4036 bytes" in rejected.message
        assert "4032" in rejected.message
        assert ok.status is Status.OK

    def test_more_memory_than_there_is(self, runner, folder, library, doubling):
        good = doubling.candidate("right")
        vast = dataclasses.replace(good, args=(*good.args, Argument(Role.SCRATCH, 1 << 46)))
        rejected, ok = runner.measure(request_of(folder, library, vast, good), folder).results
        assert rejected.status is Status.REJECTED
        assert "not enough memory" in rejected.message
        assert ok.status is Status.OK

    def test_missing_blob_is_the_devices_fault(self, runner, folder, library, doubling):
        (folder.root / doubling.output).unlink()
        result = runner.measure(request_of(folder, library, doubling.candidate("right")), folder)
        assert result.fault is DeviceFault.BROKEN
        assert doubling.output in result.message

    def test_many_blobs(self, runner, folder, library, doubling):
        words = [folder.add(number.to_bytes(4, "little")) for number in range(300)]
        args = tuple(Argument(Role.INPUT, 4, blob=word) for word in words)
        candidate = Candidate((Launch("code_three"),), args)
        (only,) = runner.measure(request_of(folder, library, candidate), folder).results
        assert "returned 3" in only.message


class TestLibrary:
    def test_library_with_a_wrong_hash_is_not_run(self, runner, folder, library, doubling):
        request = request_of(folder, library, doubling.candidate("right"))
        (folder.root / request.code[0].blob).write_bytes(library + b"\0")
        result = runner.measure(request, folder)
        assert result.fault is DeviceFault.BROKEN
        assert request.code[0].blob in result.message
        assert result.results == ()

    def test_bytes_that_are_no_library(self, runner, folder, doubling):
        names = ["right", "wrong"]
        request = request_of(folder, b"\x7fELF and no more", *map(doubling.candidate, names))
        results = runner.measure(request, folder).results
        assert [result.status for result in results] == [Status.REJECTED] * 2
        assert "cannot load" in results[0].message

    def test_impossible_policy_names_the_cause(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, threads=0)
        request = request_of(folder, library, doubling.candidate("right"), policy=policy)
        (only,) = runner.measure(request, folder).results
        assert only.status is Status.REJECTED
        assert "0 threads" in only.message


class TestRacing:
    """A candidate that is slower than another of which the same is expected gets fewer calls."""

    def test_who_comes_after_a_fast_one_is_given_up(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=4, max_repeats=4, timeout_s=10.0)
        candidates = [doubling.candidate(symbol) for symbol in ("slow", "right", "slow", "right")]
        request = request_of(folder, library, *candidates, policy=policy)
        results = runner.measure(request, folder).results
        assert [len(outcome.samples_ns) for outcome in results] == [4, 4, 2, 4]
        assert {outcome.status for outcome in results} == {Status.OK}

    def test_who_is_nearly_as_fast_is_given_up_later(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=40, max_repeats=40)
        candidates = [doubling.candidate(f"takes_{us}us") for us in (1000, 1200, 1070, 1000)]
        request = request_of(folder, library, *candidates, policy=policy)
        results = runner.measure(request, folder).results
        assert [len(outcome.samples_ns) for outcome in results] == [40, 16, 32, 40]

    def test_who_is_slow_for_a_few_short_calls_is_not(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=200, max_repeats=200)
        candidates = map(doubling.candidate, ("takes_50us", "slow_at_first", "takes_50us"))
        request = request_of(folder, library, *candidates, policy=policy)
        for _ in range(5):  # A busy machine sometimes interrupts even short calls for long.
            results = runner.measure(request, folder).results
            samples = [len(outcome.samples_ns) for outcome in results]
            if samples == [200, 200, 200]:
                break
        assert samples == [200, 200, 200]

    def test_who_computes_something_else_is_no_rival(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, min_repeats=4, max_repeats=4, timeout_s=10.0)
        slow = doubling.candidate("slow")
        nothing = dataclasses.replace(
            slow, args=tuple(dataclasses.replace(argument, expected=None) for argument in slow.args)
        )
        request = request_of(folder, library, doubling.candidate("right"), nothing, policy=policy)
        assert [len(r.samples_ns) for r in runner.measure(request, folder).results] == [4, 4]


class TestReference:
    def test_steady_machine(self, runner, folder, library, doubling):
        policy = dataclasses.replace(QUICK, max_drift=1e6)
        good = doubling.candidate("right")
        request = request_of(folder, library, good, policy=policy, reference=good)
        result = runner.measure(request, folder)
        assert result.fault is None, result.message
        assert len(result.results) == 1

    def test_drift_discards_the_batch(self, runner, folder, library, doubling):
        # No machine can stay within this drift.
        policy = dataclasses.replace(QUICK, max_drift=-1.0)
        good = doubling.candidate("right")
        result = runner.measure(
            request_of(folder, library, good, policy=policy, reference=good), folder
        )
        assert result.fault is DeviceFault.DRIFTED
        assert "%" in result.message
        assert result.results == ()

    @pytest.mark.parametrize(("after", "drifts"), [(114, False), (120, True), (50, False)])
    def test_only_a_machine_that_becomes_slower_drifts(self, doubling, after, drifts):
        candidate = doubling.candidate("right")

        def run(candidates, fresh):
            times = [100, *([70] * (len(candidates) - 2)), after]
            results = [CandidateResult(Status.OK, (ns,) * 4) for ns in times]
            return Run(results, [0] * len(candidates))

        result = AroundReference(candidate, 0.15, run).measure([candidate] * 3)
        assert (result.fault is DeviceFault.DRIFTED) is drifts
        assert len(result.results) == (0 if drifts else 3)

    def test_an_emulated_machine_cannot_drift(self, folder, library, doubling):
        policy = dataclasses.replace(QUICK, max_drift=-1.0)
        good = doubling.candidate("right")
        request = request_of(folder, library, good, policy=policy, reference=good)
        with ChildRunner(emulated=True) as runner:
            result = runner.measure(request, folder)
        assert (result.fault, result.emulated, len(result.results)) == (None, True, 1)

    def test_an_emulated_machine_gets_more_time(self, folder, library, doubling):
        policy = dataclasses.replace(QUICK, timeout_s=0.1)
        request = request_of(folder, library, doubling.candidate("hang"), policy=policy)
        with ChildRunner(emulated=True) as runner:
            (hanging,) = runner.measure(request, folder).results
        assert hanging.message == "did not return within 1 s"

    def test_bad_reference(self, runner, folder, library, doubling):
        good, bad = doubling.candidate("right"), doubling.candidate("wrong")
        result = runner.measure(request_of(folder, library, good, reference=bad), folder)
        assert result.fault is DeviceFault.BROKEN
        assert "reference" in result.message


class TestChild:
    def test_every_batch_has_its_own_and_the_fork_server_is_kept(
        self, runner, folder, library, doubling, monkeypatch
    ):
        pids = []
        greet = Child.greet

        def noted(child):
            greet(child)
            pids.append(child.pid)

        monkeypatch.setattr(Child, "greet", noted)
        request = request_of(folder, library, doubling.candidate("right", cold=True))
        assert runner.measure(request, folder).results[0].status is Status.OK
        before = measuring_processes(os.getpid())
        for _ in range(10):
            assert runner.measure(request, folder).results[0].status is Status.OK
            assert measuring_processes(os.getpid()) == before
        assert len(set(pids)) == 11
        assert not any(map(is_running, pids))

    def test_kill_from_outside_is_not_the_candidates_doing(self, folder, library, doubling):
        request = self._slow_and_right(folder, library, doubling)
        with ChildRunner() as own:
            results = self._disturbed(own, request, folder, signal.SIGKILL, child_of)
        assert [result.status for result in results] == [Status.OK, Status.OK]

    def test_stopped_child_times_out(self, folder, library, doubling):
        request = self._slow_and_right(folder, library, doubling, timeout_s=3.0)
        with ChildRunner() as own:
            stopped, after = self._disturbed(own, request, folder, signal.SIGSTOP, child_of)
        assert stopped.status is Status.TIMEOUT
        assert after.status is Status.OK

    @pytest.mark.parametrize("victim", ["first", "behind"])
    def test_a_fork_server_that_is_killed_is_replaced(self, folder, library, doubling, victim):
        """In mid-batch, where its child goes with it; and between two batches."""
        request = self._slow_and_right(folder, library, doubling)
        with ChildRunner() as own:
            own.sandbox_level()
            old = fork_server_of(own)
            results = self._disturbed(own, request, folder, signal.SIGKILL, PROCESSES[victim])
            assert [result.status for result in results] == [Status.OK, Status.OK]
            assert not is_running(old)
            os.kill(PROCESSES[victim](own), signal.SIGKILL)
            assert own.measure(request, folder).results[1].status is Status.OK
            assert fork_server_of(own) != old

    def test_a_fork_server_that_stands_still_is_replaced(
        self, folder, library, doubling, monkeypatch
    ):
        """Its child's results, which it has no part in, count."""
        monkeypatch.setattr(children, "_END_S", 1.0)
        monkeypatch.setattr(children, "_FORK_S", 1.0)
        request = self._slow_and_right(folder, library, doubling)
        with ChildRunner() as own:
            own.sandbox_level()
            old = fork_server_of(own)
            results = self._disturbed(own, request, folder, signal.SIGSTOP, fork_server_of)
            assert [result.status for result in results] == [Status.OK, Status.OK]
            assert not is_running(old)
            own.sandbox_level()
            os.kill(fork_server_of(own), signal.SIGSTOP)
            assert own.measure(request, folder).results[1].status is Status.OK

    def _slow_and_right(self, folder, library, doubling, timeout_s=5.0):
        policy = dataclasses.replace(QUICK, min_repeats=4, timeout_s=timeout_s)
        candidates = map(doubling.candidate, ["slow", "right"])
        return request_of(folder, library, *candidates, policy=policy)

    def _disturbed(self, own, request, folder, number, victim):
        """The results of a batch in whose first candidate a process of the runner gets a signal."""
        own.sandbox_level()
        pids = []

        def disturb():
            pids.append(victim(own))
            os.kill(pids[0], number)

        timer = threading.Timer(0.4, disturb)
        timer.start()
        results = own.measure(request, folder).results
        timer.join()
        assert not is_running(pids[0])
        return results

    def test_cancel_ends_the_batch(self, runner, folder, library, doubling):
        cancelled = threading.Event()
        request = request_of(folder, library, doubling.candidate("hang"))
        timer = threading.Timer(0.3, cancelled.set)
        timer.start()
        begin = time.monotonic()
        result = runner.measure(request, folder, cancelled)
        timer.join()
        assert result.fault is DeviceFault.LOST
        assert time.monotonic() - begin < 2
        assert (
            runner.measure(request_of(folder, library, doubling.candidate("right")), folder)
            .results[0]
            .status
            is Status.OK
        )

    def test_runner_outlives_the_thread_that_first_used_it(self, folder, library, doubling):
        request = request_of(folder, library, doubling.candidate("right"))
        with ChildRunner() as own:
            thread = threading.Thread(target=own.sandbox_level)
            thread.start()
            thread.join()
            before = fork_server_of(own)
            time.sleep(0.1)
            assert own.measure(request, folder).results[0].status is Status.OK
            assert fork_server_of(own) == before

    def test_a_signal_while_a_child_is_ended_leaves_nothing_behind(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        before = measuring_processes(os.getpid())
        runner = ChildRunner()
        end = Children.end

        def interrupted(own, grace_s=0.0):
            monkeypatch.setattr(Children, "end", end)
            raise KeyboardInterrupt

        monkeypatch.setattr(Children, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner.sandbox_level()
        assert list(tmp_path.iterdir())
        runner.close()
        assert not list(tmp_path.iterdir())
        assert measuring_processes(os.getpid()) == before

    def test_close_leaves_nothing_behind(self, folder, library, doubling, tmp_path, monkeypatch):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        own = ChildRunner()
        own.measure(request_of(folder, library, doubling.candidate("right")), folder)
        server = fork_server_of(own)
        # The fork server's remains; that of the child is gone.
        assert len(list(scratch.iterdir())) == 1
        own.close()
        own.close()
        assert not is_running(server)
        assert not list(scratch.iterdir())
        with pytest.raises(ValueError, match="closed"):
            own.measure(request_of(folder, library), folder)


def child_of(runner) -> int:
    """The process id of the runner's child."""
    return runner._supervisor._children._child.pid


def fork_server_of(runner) -> int:
    """The process id of the runner's fork server."""
    return runner._supervisor._children._server.greeter


def behind(runner) -> int:
    """The process id of what stands before the fork server, which may be itself."""
    return runner._supervisor._children._server.pid


PROCESSES = {"first": fork_server_of, "behind": behind}
