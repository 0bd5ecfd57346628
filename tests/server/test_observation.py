"""Tests of what operators see: metrics, request ids, logs."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from farrier.options import CompileOptions
from farrier.records import TuningRecord
from farrier_device import logs
from farrier_device.measurement import Status

OPTIONS = CompileOptions(verify=False, target="rpi4")


def scrape(http) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    answer = http.get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


def test_metrics_tell_of_the_farm_and_of_requests(service):
    http, farm = service.http(), service.farm
    model = farm.blobs.put(b"model")
    jobs = [farm.jobs.submit(model, OPTIONS) for _ in range(3)]
    farm.jobs.lease("worker", 1)
    farm.jobs.cancel(jobs[1].id)
    farm.records.add(TuningRecord("t", "f", 1, "tile", 1, (), "", Status.TIMEOUT))
    for name in ("a", "b"):
        assert http.get(f"/v1/jobs/{name}").status_code == 404
    http.get("/v1/nowhere/at/all")
    for method in ("FOO", "BAR"):
        assert httpx.request(method, f"{service.url}/v1/jobs").status_code == 401
    seen = scrape(http)
    states = {state: seen["farrier_jobs", state] for state in ("queued", "running", "cancelled")}
    assert states == {"queued": 1, "running": 1, "cancelled": 1}
    assert seen["farrier_job_changes_total", "queued"] == 3
    assert seen["farrier_records_total",] == 1
    assert seen["farrier_redis_up",] == 1
    assert seen["farrier_blobs_free_bytes",] > 0
    # Ids make no series of their own, and nor does what no route takes, or a stranger's method.
    assert seen["farrier_http_request_seconds_count", "other", "none", "401"] == 2
    route = ("GET", "/v1/jobs/{job_id}", "404")
    assert seen["farrier_http_request_seconds_count", *route] == 2
    assert seen["farrier_http_request_seconds_count", "GET", "none", "404"] == 1
    http.headers.clear()
    assert http.get("/metrics").status_code == 401


def test_a_scrape_costs_redis_the_same_whatever_there_is(service):
    http, farm = service.http(), service.farm

    def cost() -> int:
        before = int(farm.client.command("INFO", "stats")["total_commands_processed"])
        scrape(http)
        return int(farm.client.command("INFO", "stats")["total_commands_processed"]) - before

    cost()  # The first call loads a script.
    few = min(cost() for _ in range(3))  # Opening another thread's connection costs some commands.
    model = farm.blobs.put(b"model")
    for number in range(40):
        farm.jobs.submit(model, OPTIONS)
        farm.records.add(TuningRecord(f"t{number}", "f", 1, "tile", 1, (), "", Status.TIMEOUT))
    assert min(cost() for _ in range(3)) == few


def test_without_redis_the_requests_are_still_told(installation, start_service):
    service = start_service(installation.settings)
    http = service.http()
    installation.kill_redis()
    assert http.get("/v1/jobs").status_code == 503
    seen = scrape(http)
    assert seen["farrier_redis_up",] == 0
    assert seen["farrier_http_request_seconds_count", "GET", "/v1/jobs", "503"] == 1
    installation.start_redis()


def test_logs_are_json_with_what_they_are_about(tmp_path):
    code = """
import logging, threading
from farrier_device import logs
logs.set_up("device", "json", device="rack1")
log = logging.getLogger("farrier_device.loop")
log.info("two\\nlines %d", 5)
with logs.about(job="j1", batch=""):
    with logs.about(batch="b1"):
        log.warning("inner")
    try:
        raise ValueError("off")
    except ValueError:
        log.exception("outer")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, inner, outer = map(json.loads, done.stderr.splitlines())
    assert first["message"] == "two\nlines 5"
    assert (first["role"], first["device"], first["level"]) == ("device", "rack1", "info")
    assert "job" not in first
    assert (inner["job"], inner["batch"], inner["message"]) == ("j1", "b1", "inner")
    assert "batch" not in outer
    assert "ValueError: off" in outer["exception"]


def test_a_request_s_log_lines_and_its_answer_have_its_id(installation, start_service):
    service = start_service(installation.settings)
    http, said = service.http(), io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(logs._Json({"role": "serve"}))
    logging.getLogger("farrier_server").addHandler(handler)
    installation.kill_redis()
    try:
        answer = http.get("/v1/jobs")
    finally:
        logging.getLogger("farrier_server").removeHandler(handler)
        installation.start_redis()
    assert answer.status_code == 503
    (line,) = map(json.loads, said.getvalue().splitlines())
    assert line["request"] == answer.headers["X-Request-Id"]


def test_a_warning_in_a_role_s_log_is_news(service):
    with service.farm.announcing("worker"):
        logging.getLogger("farrier_worker.supervisor").warning("job %s returns to the queue", "j1")
        logging.getLogger("urllib3").warning("not ours")
        deadline = time.monotonic() + 20
        while not (news := service.farm.events.follow({"": "0-0"}, 1.0)):
            assert time.monotonic() < deadline
    (event,) = news[""]
    assert event.data == {
        "kind": "warning",
        "role": "worker",
        "message": "job j1 returns to the queue",
    }


@pytest.mark.parametrize("status", [404, 401])
def test_answers_bear_their_request_s_id(service, status):
    http = service.http()
    if status == 401:
        http.headers.clear()
    answers = [http.get("/v1/jobs/nothing") for _ in range(2)]
    assert {answer.status_code for answer in answers} == {status}
    assert len({answer.headers["X-Request-Id"] for answer in answers}) == 2
