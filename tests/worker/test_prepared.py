"""Tests of jobs that prepare documents about models: with the same process, sandbox and ends as
compilations."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
import zipfile

import pytest
from onnx import TensorProto, helper

from bench.models import build
from farrier.errors import NotFoundError
from farrier.listing import archive
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_farm.storage.models import DataFile, Manifest
from farrier_worker.supervisor import JOB_COMMAND
from tests.here import TARGET
from tests.waiting import wait_until
from tests.worker.test_job import _model, _with_data_file


@pytest.fixture
def ended(farm: Farm):
    return lambda job: wait_until(lambda: (j := farm.jobs.get(job.id)).state.final and j)


def document(farm: Farm, job: Job):
    assert job.state is State.SUCCEEDED, job.error
    return json.loads(farm.blobs.verified(job.artifact).read_bytes())


def test_a_model_is_inspected_beside_a_compilation_that_takes_all_slots(
    farm: Farm, program, supervise, ended
) -> None:
    busy = farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET, verify=False))
    command = program(
        """
        from farrier_worker import job
        if line.order["kind"] == "compile":
            line.say(progress.StageStarted("schedule"))
            time.sleep(60)
        job.run(line)
        """,
        is_enclosed=True,
    )
    supervise(command, jobs_at_once=1)
    wait_until(lambda: farm.jobs.get(busy.id).stage)
    job, is_new = farm.jobs.inspect(farm.blobs.put(build("resnet50")))
    job = ended(job)
    assert (is_new, job.kind, job.attempts) == (True, JobKind.INSPECT, 1)
    shown = document(farm, job)
    assert shown["problems"] == []
    assert shown["inputs"] == [{"name": "x", "dtype": "f32", "dims": [1, 3, 224, 224]}]
    assert job.used.worked_s < 30
    assert farm.jobs.get(busy.id).state is State.RUNNING
    assert [listed.id for listed in farm.jobs.list()[0]] == [busy.id]
    assert [listed.id for listed in farm.jobs.list(kind=JobKind.INSPECT)[0]] == [job.id]


def test_data_files_of_a_model_are_found(farm: Farm, supervise, ended) -> None:
    message, data = _with_data_file("folder/m.data")
    sizes = {"folder/m.data": DataFile(farm.blobs.put(data), len(data))}
    whole = farm.models.create(Manifest(farm.blobs.put(message), sizes))
    supervise(list(JOB_COMMAND))
    assert document(farm, ended(farm.jobs.inspect(whole)[0]))["problems"] == []
    [problem] = document(farm, ended(farm.jobs.inspect(farm.blobs.put(message))[0]))["problems"]
    assert "'folder/m.data'" in problem["detail"]
    assert str(farm.settings.home) not in problem["detail"]


def test_what_is_no_model_or_does_not_compile_is_no_crash(farm: Farm, supervise, ended) -> None:
    graph = helper.make_graph(
        [helper.make_node("Warp", ["x"], ["y"], domain="my.ops")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    unknown = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    supervise(list(JOB_COMMAND))
    expected = {b"no model": "invalid-model", unknown: "unsupported-operator"}
    for model, code in expected.items():
        job = ended(farm.jobs.inspect(farm.blobs.put(model))[0])
        [problem] = document(farm, job)["problems"]
        assert (problem["code"], job.attempts, job.crashes) == (code, 1, 0)


def test_a_process_that_crashes_fails_the_inspection_alone(
    farm: Farm, program, supervise, ended
) -> None:
    job, _ = farm.jobs.inspect(farm.blobs.put(b"m"))
    supervise(program("os.kill(os.getpid(), signal.SIGSEGV)"))
    ended_job = ended(job)
    assert (ended_job.state, ended_job.crashes) == (State.DEAD, farm.settings.job_crashes)
    assert "SIGSEGV" in ended_job.error["message"]
    assert "farrier inspect" in ended_job.error["hint"]
    again, is_new = farm.jobs.inspect(job.model)
    assert (is_new, again.id != job.id) == (True, True)


def test_an_inspection_is_cancelled(farm: Farm, program, supervise, ended) -> None:
    job, _ = farm.jobs.inspect(farm.blobs.put(b"m"))
    supervise(program("line.say(progress.StageStarted('import')); time.sleep(60)"))
    wait_until(lambda: farm.jobs.get(job.id).stage)
    farm.cancel(job.id)
    asked = farm.jobs.inspect(job.model)[0]
    assert asked.id != job.id
    begin = time.monotonic()  # Its slot is soon free again.
    wait_until(lambda: farm.jobs.get(asked.id).stage)
    assert time.monotonic() - begin < 10
    farm.delete(asked.id)


@pytest.mark.parametrize(
    "ask",
    [
        'line.ask({"measure": "{}", "blobs": []})',
        'line.ask({"add": "{}"})',
        'next(line.parts({"records": True}))',
        "open('large', 'wb').truncate(9 << 20); line.finish(os.open('large', os.O_RDONLY), {})",
    ],
)
def test_one_that_asks_for_what_only_compilations_may_is_ended(
    farm: Farm, program, supervise, ended, ask
) -> None:
    job, _ = farm.jobs.inspect(farm.blobs.put(b"m"))
    supervise(program(ask))
    ended_job = ended(job)
    assert ended_job.state is State.DEAD
    assert "malformed" in ended_job.error["message"]
    assert farm.records.count() == 0


def test_memory_is_limited(farm: Farm, program, supervise, ended) -> None:
    job, _ = farm.jobs.inspect(farm.blobs.put(_model()))
    greedy = program("from farrier_worker import job\nx = bytes(1 << 30)", is_enclosed=True)
    supervise(greedy, job_memory_bytes=400 << 20)
    ended_job = ended(job)
    assert ended_job.state in (State.FAILED, State.DEAD)
    assert "Memory" in ended_job.error["message"] or "memory" in ended_job.error["message"]


def test_time_is_limited_however_long_compilations_may_run(
    farm: Farm, program, supervise, ended
) -> None:
    job, _ = farm.jobs.inspect(farm.blobs.put(b"m"))
    busy = farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET, verify=False))
    babble = "while True: time.sleep(0.1); line.say(progress.StageStarted('import'))"
    supervise(program(babble), inspect_s=0.5)
    ended_job = ended(job)
    assert (ended_job.state, ended_job.error["code"]) == (State.FAILED, "time-limit")
    assert "the inspection has run for 0.5 s" in ended_job.error["message"]
    assert "FARRIER_INSPECT_S" in ended_job.error["hint"]
    assert farm.jobs.get(busy.id).state is State.RUNNING
    farm.cancel(busy.id)


def test_a_worker_of_an_older_version_does_not_see_them(farm: Farm) -> None:
    """It asks for the queues of the compilations, whatever their names."""
    farm.jobs.inspect(farm.blobs.put(b"m"))
    old = farm.jobs.leases
    assert old.take("old", ["compile", *old.queues()], 0.0) is None
    assert farm.jobs.lease("old", 0.0) is None
    lease = farm.jobs.lease_prepared("new")
    assert lease is not None
    assert dataclasses.replace(farm.jobs.get(lease.item), started=None).kind is JobKind.INSPECT


@pytest.fixture
def compiled(farm: Farm, supervise, ended):
    """A model that a worker has compiled; the worker goes on."""
    options = CompileOptions(target=TARGET, verify=False)
    job = farm.jobs.submit(farm.blobs.put(_model()), options, name="mlp")
    supervise(list(JOB_COMMAND))
    job = ended(job)
    assert job.state is State.SUCCEEDED, job.error
    return job


def test_the_kernels_of_a_compiled_job_are_listed(farm: Farm, compiled, ended) -> None:
    job, _ = farm.jobs.list_kernels(compiled)
    job = ended(job)
    assert (job.state, job.attempts, job.kind) == (State.SUCCEEDED, 1, JobKind.LIST), job.error
    path = farm.blobs.verified(job.artifact)
    listing = archive.read_listing(path)
    assert listing["is_same"] is job.report["is_same"] is True
    [kernel] = listing["kernels"]
    assert (kernel["flops"], kernel["calls"]) == (5 * 131 * (2 * 67 + 1), 1)
    assert kernel["symbol"] in archive.read_texts(path, 0)["assembly"]
    events = [event.data["kind"] for event in farm.events.read(job.id)]
    assert "stage-started" in events


def test_a_listing_that_fails_leaves_the_job_as_it_is(farm: Farm, compiled, ended) -> None:
    path = farm.blobs.path(compiled.artifact)
    content = path.read_bytes()
    path.write_bytes(content[:-1000])
    damaged = ended(farm.jobs.list_kernels(compiled)[0])
    assert (damaged.state, damaged.error["code"]) == (State.FAILED, "storage")
    assert farm.jobs.get(compiled.id) == compiled
    path.write_bytes(content)
    again = ended(farm.jobs.list_kernels(compiled)[0])
    assert again.state is State.SUCCEEDED, again.error


def test_an_artifact_of_an_older_version_is_told_so(farm: Farm, compiled, ended) -> None:
    whole = zipfile.ZipFile(farm.blobs.path(compiled.artifact))
    older = io.BytesIO()
    with zipfile.ZipFile(older, "w") as file:
        for name in whole.namelist():
            if name not in ("schedules.json", "signature.json"):
                file.writestr(name, whole.read(name))
    key = farm.jobs.leases.key(compiled.id)
    farm.client.command("HSET", key, "artifact", farm.blobs.put(older.getvalue()))
    job = ended(farm.jobs.list_kernels(farm.jobs.get(compiled.id))[0])
    assert (job.state, job.error["code"]) == (State.FAILED, "artifact")
    assert "older Farrier" in job.error["hint"]


def test_a_job_that_is_deleted_ends_its_listing(farm: Farm, program, supervise) -> None:
    source = farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET, verify=False))
    farm.jobs.succeed(farm.jobs.lease("w", 0.0), farm.blobs.put(b"compiled"), {}, 8)
    listing, _ = farm.jobs.list_kernels(farm.jobs.get(source.id))
    supervise(
        program(
            """
            assert open(line.order["artifact"], "rb").read() == b"compiled"
            line.say(progress.StageStarted(str(os.getpid())))
            time.sleep(60)
            """
        )
    )
    pid = wait_until(lambda: farm.jobs.get(listing.id).stage)
    farm.delete(source.id)
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(NotFoundError):
        farm.jobs.get(listing.id)
    asked = farm.jobs.inspect(farm.blobs.put(b"m2"))[0]
    wait_until(lambda: farm.jobs.get(asked.id).attempts)  # The slot is free again.
    farm.delete(asked.id)
