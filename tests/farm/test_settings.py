"""Settings: read in one place, documented one by one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from farrier.errors import UsageError
from farrier_farm.settings import Settings, variables

ROOT = Path(__file__).parents[2]


def test_every_variable_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "operate" / "settings.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (?:`([^`]*)`)? *\|", page, re.MULTILINE))
    expected = {
        name: default.replace(str(Path.home()), "~") for name, default in variables().items()
    }
    assert rows == expected


def test_every_default_can_be_said() -> None:
    assert Settings.from_environment(variables()) == Settings()


def test_defaults_and_values(tmp_path: Path) -> None:
    assert Settings.from_environment({}) == Settings()
    settings = Settings.from_environment(
        {
            "FARRIER_HOME": str(tmp_path),
            "REDIS_URL": "redis://farm:6379/2",
            "FARRIER_API_PORT": "0",
            "FARRIER_LEASE_S": "2.5",
            "FARRIER_TOKEN": "",
        }
    )
    assert settings == Settings(
        home=tmp_path, redis_url="redis://farm:6379/2", api_port=0, lease_s=2.5
    )
    home = Settings.from_environment({"FARRIER_HOME": "~/f"}).home
    assert home == Path("~/f").expanduser()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("FARRIER_API_PORT", "70000"),
        ("FARRIER_API_PORT", "http"),
        ("FARRIER_LEASE_S", "0"),
        ("FARRIER_LEASE_S", "nan"),
        ("FARRIER_LEASE_S", "inf"),
        ("FARRIER_MAX_UPLOAD_BYTES", "-1"),
        ("FARRIER_MAX_UPLOAD_BYTES", "2GiB"),
        ("FARRIER_INSECURE_PRIVATE_NETWORK", "yes"),
        ("FARRIER_JOBS_AT_ONCE", "0"),
        ("FARRIER_JOB_CRASHES", "0"),
        ("FARRIER_BATCH_ATTEMPTS", "0"),
        ("FARRIER_QUARANTINE_FAULTS", "0"),
        ("FARRIER_EVENTS_KEPT", "0"),
    ],
)
def test_values_that_make_no_sense_name_their_variable(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=variable):
        Settings.from_environment({variable: text})


def test_a_child_reads_the_same_settings(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, tls_key=tmp_path / "key", insecure_private_network=True, grace_s=0.5
    )
    assert Settings.from_environment(settings.to_environment()) == settings
    assert set(settings.to_environment()) == set(variables())
