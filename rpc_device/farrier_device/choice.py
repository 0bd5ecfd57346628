"""The choice of a device for a child process, with the Python packages and environment variables
that its driver needs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from farrier_device import installation
from farrier_device.devices import KINDS, DeviceKind
from farrier_device.landlock import Access
from farrier_device.profiles import SIMULATOR

_PACKAGES = ("site-packages", "dist-packages")


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A device by its kind and, if this machine has several of the kind, by its `name`. With a
    `simulator`, a simulator of another package opens the device. `packages` are folders of Python
    packages, `secrets` are paths that the child cannot read, and `variables` are environment
    variables for the child."""

    kind: str
    name: str = ""
    simulator: str = ""
    packages: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def here(cls, kind: str, name: str, device: DeviceKind, secrets: Sequence[Path] = ()) -> Choice:
        """Return the choice of a device, with the packages and variables of this process if the
        driver is a Python package."""
        profile = device.profile
        if not profile.is_package:
            return cls(kind, name)
        packages = [path for path in sys.path if Path(path).name in _PACKAGES]
        simulator = ""
        if profile is SIMULATOR:
            simulator = device.device
            packages.append(_folder_of(simulator.partition(".")[0]))
        variables = {word: os.environ[word] for word in profile.variables if word in os.environ}
        return cls(kind, name, simulator, tuple(packages), tuple(map(str, secrets)), variables)

    @property
    def device(self) -> DeviceKind:
        """The kind of device that the child opens."""
        return DeviceKind(self.simulator, SIMULATOR) if self.simulator else KINDS[self.kind]

    def enter_installation(self) -> dict[Path, Access]:
        """Add the packages to this process's module path and set the variables; return the paths
        that must stay readable."""
        sys.path += self.packages
        os.environ.update(self.variables)
        os.environ["MESA_SHADER_CACHE_DISABLE"] = "true"  # The process can write no file.
        reads = installation.readable(map(Path, self.secrets))
        for folder in self._driver_folders():
            reads.setdefault(folder, Access.READ)
        return reads

    def _driver_folders(self) -> list[Path]:
        """Return the folders of the GPU drivers that environment variables name: the folders of the
        driver manifests, and of the libraries to which these refer."""
        folders = []
        for word, value in self.variables.items():
            if word.startswith("VK_"):
                for path in filter(None, value.split(os.pathsep)):
                    folders += [Path(path).parent, *_library_folder(Path(path))]
        return folders


def _library_folder(description: Path) -> list[Path]:
    try:
        library = json.loads(description.read_text())["ICD"]["library_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [(description.parent / str(library)).parent]


def _folder_of(package: str) -> str:
    """Return the folder that contains a package, which may be outside of the installed packages."""
    spec = importlib.util.find_spec(package)
    places = [] if spec is None else [*(spec.submodule_search_locations or ())]
    return str(Path(places[0]).parent) if places else ""
