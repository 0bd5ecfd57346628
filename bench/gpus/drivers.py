"""Set up drivers and packages for GPU tests; each set-up is a set of environment variables for a
process."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farrier.errors import UsageError
from farrier.files.atomic import write_text_atomically
from farrier_device.adapters import PACKAGE

HOME = Path(__file__).parents[2] / "build/gpus"
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
_MESA = "mesa-vulkan-drivers"
_OLDEST_MESA = 25  # Dawn wants features of Vulkan that earlier versions of llvmpipe lack.
_DAWN = "wgpudawn==0.32.0.4"
_ASK = """
from farrier_device import adapters
try:
    print(adapters.find_adapter().driver)
except adapters.NoAdapterError as error:
    raise SystemExit(str(error))
"""


class NoGpuError(UsageError):
    """Error: no GPU adapter is available here, for the reason in the message."""

    code = "no-gpu"


def set_up_naga(say: Callable[[str], object]) -> Mapping[str, str]:
    """Return the environment variables for wgpu on the machine's own driver; an emulating driver is
    installed if there is none. Raises NoGpuError."""
    variables = {PACKAGE: "wgpu"}
    if _why_not(variables):
        _install_mesa(say)
    if why := _why_not(variables):
        raise NoGpuError(why, hint=f"apt-get install {_MESA} libvulkan1")
    return variables


def set_up_tint(say: Callable[[str], object]) -> Mapping[str, str]:
    """Return the environment variables for Dawn on the machine's own driver, or on a newer Mesa,
    unpacked separately, if the driver is too old. Raises NoGpuError."""
    variables = {PACKAGE: "wgpudawn", "PYTHONPATH": os.pathsep.join([*_path(), str(_dawn(say))])}
    if not _why_not(variables):
        return variables
    driver = str(_newer_mesa(say))
    variables |= {"VK_DRIVER_FILES": driver, "VK_ICD_FILENAMES": driver}
    if why := _why_not(variables):
        raise NoGpuError(f"Dawn has no adapter: {why}", hint=f"it needs Mesa {_OLDEST_MESA}")
    return variables


def adapter(variables: Mapping[str, str]) -> str:
    """Return the name of the first GPU adapter's driver."""
    return _asked(variables).stdout.strip()


def _why_not(variables: Mapping[str, str]) -> str:
    """Return the reason for which no adapter is available, or "" if one is."""
    done = _asked(variables)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def _asked(variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _ASK],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _path() -> list[str]:
    """Return the folders of the caller's PYTHONPATH."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _install_mesa(say: Callable[[str], object]) -> None:
    """Install Mesa's driver that emulates a GPU. Raises NoGpuError."""
    _check_apt()
    say(f"installing {_MESA}")
    _run(["apt-get", "update", "-q"])
    _run(["apt-get", "install", "-q", "-y", "--no-install-recommends", _MESA, "libvulkan1"])


def _dawn(say: Callable[[str], object]) -> Path:
    """Return the folder with Dawn's Python package, which sandboxed child processes can also
    read."""
    folder = HOME / "site-packages"
    if not (folder / "wgpudawn").exists():
        say(f"installing {_DAWN}")
        _run([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), _DAWN])
    return folder


def _newer_mesa(say: Callable[[str], object]) -> Path:
    """Return the path of the driver description of a newer Mesa, unpacked from Debian's backports.
    Raises NoGpuError."""
    description = HOME / "mesa.json"
    if description.exists():
        return description
    _check_apt()
    say(f"unpacking Mesa {_OLDEST_MESA} of Debian's backports")
    place = HOME / "mesa"
    shutil.rmtree(place, ignore_errors=True)
    for folder in ("parts", "lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True)
    (place / "parts/backports.sources").write_text(backports(_SOURCES.read_text()))
    options = [
        *("-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={place}/parts"),
        *("-o", f"Dir::State::lists={place}/lists", "-o", f"Dir::Cache={place}/cache"),
    ]
    _run(["apt-get", *options, "update", "-q"])
    _run(["apt-get", *options, "download", "-q", _MESA], cwd=place)
    [package] = place.glob(f"{_MESA}_*.deb")
    _run(["dpkg-deb", "-x", str(package), str(place / "root")])
    icd = json.loads((place / "root/usr/share/vulkan/icd.d/lvp_icd.json").read_text())
    [library] = glob.glob(f"{place}/root/usr/lib/*/libvulkan_lvp.so")
    icd["ICD"]["library_path"] = library
    write_text_atomically(description, json.dumps(icd))
    return description


def backports(sources: str) -> str:
    """Return Debian's package sources (in deb822 form) with the backports suite in place of the
    stable one; security updates have no backports."""
    suite = re.search(r"^Suites:\s*(\w+)", sources, re.MULTILINE)
    stanzas = [part for part in re.split(r"\n\s*\n", sources) if "debian-security" not in part]
    if suite is None or not stanzas:
        raise NoGpuError(f"{_SOURCES} names no suite of Debian", hint="--only naga leaves it out")
    return re.sub(r"(?m)^Suites:.*$", f"Suites: {suite[1]}-backports", stanzas[0]) + "\n"


def _check_apt() -> None:
    """Raise NoGpuError if this process cannot install Debian packages."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None or not _SOURCES.exists():
        raise NoGpuError(
            "a driver for Vulkan has to be installed, which takes root on Debian 12 or newer",
            hint=f"install {_MESA}, or the GPU vendor's driver",
        )


def _run(words: Sequence[str], cwd: Path | None = None) -> None:
    """Run a command. Raises NoGpuError with the last line of its output if it fails."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        raise NoGpuError(f"{words[0]} failed: {lines[-1]}", hint="--optional skips what fails")
