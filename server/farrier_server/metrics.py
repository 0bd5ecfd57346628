"""The metrics that Prometheus scrapes: this server's requests, and the state of the farm in Redis.

The values of the farm are read from Redis at each scrape. The work for each value does not depend
on the number of jobs, devices or records; metrics with a label for the device class grow with the
number of classes.
"""

from __future__ import annotations

import importlib.metadata
import logging
import shutil
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from farrier.errors import ServiceError
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_server.limits import Limits

_log = logging.getLogger(__name__)


class Metrics:
    """The Prometheus metrics of an application (an API server)."""

    def __init__(self, farm: Farm, limits: Limits) -> None:
        self._registry = CollectorRegistry()
        self.requests = Histogram(
            "farrier_http_request_seconds",
            "The time until an answer begins",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.streams = Gauge(
            "farrier_http_requests_open",
            "The number of requests in progress, including event streams",
            registry=self._registry,
        )
        version = importlib.metadata.version("farrier")
        Info("farrier_build", "The version of Farrier", registry=self._registry).info(
            {"version": version}
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(LimitsCollector(limits))
        self._registry.register(FarmCollector(farm))

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


class LimitsCollector(Collector):
    """The use of this process's pools of requests (`limits.py`). Users have no metrics of their
    own, since there may be many; the metrics show how far the busiest user is from a limit, and the
    log names users whose requests were refused."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "farrier_refusals",
            "The number of requests that were refused because of a limit per user",
            labels=["limit"],
        )
        for limit, count in dict(self._limits.refused).items():
            refused.add_metric([limit], count)
        yield refused
        taken = GaugeMetricFamily(
            "farrier_places_taken", "The number of requests in progress, by pool", labels=["pool"]
        )
        of_one = GaugeMetricFamily(
            "farrier_places_taken_by_one",
            "The highest number of requests in progress of one user, by pool",
            labels=["pool"],
        )
        for pool, most in self._limits.most().items():
            taken.add_metric([pool], self._limits.taken[pool])
            of_one.add_metric([pool], most)
        yield taken
        yield of_one

    def describe(self) -> Iterator[Metric]:
        """Return no metrics, so that registration does not check names for conflicts: no other
        collector uses these names."""
        return iter(())


class FarmCollector(Collector):
    """The metrics of the farm. While Redis is unavailable, `farrier_redis_up` is 0 and all other
    metrics are missing."""

    def __init__(self, farm: Farm) -> None:
        self._farm = farm

    def collect(self) -> Iterator[Metric]:
        try:
            metrics = [
                *self._jobs(),
                *self._batches(),
                *self._builds(),
                *self._devices(),
                *self._events(),
                *self._device_seconds(),
                self._records(),
            ]
        except ServiceError as error:
            _log.warning("the metrics of the farm are missing: %s", error)
            metrics = []
        yield GaugeMetricFamily(
            "farrier_redis_up", "1 if Redis answers, otherwise 0", value=bool(metrics)
        )
        room = GaugeMetricFamily(
            "farrier_blobs_free_bytes", "The free space on the disk of the blobs"
        )
        room.add_metric([], shutil.disk_usage(self._farm.settings.home).free)
        yield room
        yield from metrics

    def describe(self) -> Iterator[Metric]:
        """Return no metrics, so that registration does not read from Redis."""
        return iter(())

    def _jobs(self) -> Iterator[Metric]:
        states = GaugeMetricFamily("farrier_jobs", "The number of jobs, by state", labels=["state"])
        for state in State:
            states.add_metric([state], self._farm.jobs.leases.count(state))
        yield states

    def _batches(self) -> Iterator[Metric]:
        leases = self._farm.measurements.leases
        states = GaugeMetricFamily(
            "farrier_batches", "The number of batches, by state", labels=["state"]
        )
        for state in (State.QUEUED, State.RUNNING):
            states.add_metric([state], leases.count(state))
        yield states
        queues = GaugeMetricFamily(
            "farrier_batch_queue_length",
            "The number of queued or leased batches, by device class",
            labels=["class"],
        )
        for device_class in self._farm.devices.classes():
            queues.add_metric([device_class.id], leases.length(device_class.id))
        yield queues

    def _builds(self) -> Iterator[Metric]:
        builds = self._farm.builds
        states = GaugeMetricFamily(
            "farrier_builds", "The number of builds, by state", labels=["state"]
        )
        for state in (State.QUEUED, State.RUNNING):
            states.add_metric([state], builds.leases.count(state))
        yield states
        yield GaugeMetricFamily(
            "farrier_builders",
            "The number of running builders with this server's version",
            value=len(builds.builders()),
        )

    def _devices(self) -> Iterator[Metric]:
        devices = self._farm.devices
        yield GaugeMetricFamily(
            "farrier_devices_connected",
            "The number of connected devices, including those in quarantine",
            value=devices.beating(),
        )
        by_class = GaugeMetricFamily(
            "farrier_devices",
            "The number of connected devices that are not in quarantine, by class",
            labels=["class"],
        )
        for device_class in devices.classes():
            by_class.add_metric([device_class.id], devices.serving(device_class.id))
        yield by_class

    def _events(self) -> Iterator[Metric]:
        jobs = CounterMetricFamily(
            "farrier_job_changes", "The number of changes of jobs to a state", labels=["state"]
        )
        devices = CounterMetricFamily(
            "farrier_device_events", "The number of events of devices, by event", labels=["what"]
        )
        families = {"job": jobs, "device": devices}
        for name, count in self._farm.news.counts().items():
            kind, _, label = name.partition(" ")
            if kind in families:
                families[kind].add_metric([label], count)
        yield from families.values()

    def _device_seconds(self) -> Iterator[Metric]:
        by_user = self._farm.quotas.device_seconds()
        yield GaugeMetricFamily(
            "farrier_device_seconds_today",
            "The time in which devices have measured for jobs since midnight (UTC)",
            value=sum(by_user.values()),
        )
        yield GaugeMetricFamily(
            "farrier_device_seconds_today_by_one",
            "The longest such time of one user",
            value=max(by_user.values(), default=0.0),
        )

    def _records(self) -> Metric:
        return CounterMetricFamily(
            "farrier_records",
            "The number of tuning records that were added",
            value=self._farm.records.count(),
        )
