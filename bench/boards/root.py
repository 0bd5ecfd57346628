"""A root folder with an arm64 Debian, whose Python runs on this machine under qemu-user.

The packages are unpacked but not configured, because Python does not require it, and it takes
minutes of emulation. pip downloads the wheels for that Python, in the versions of this environment.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.boards import board
from farrier.errors import UsageError
from farrier.files.atomic import write_text_atomically

REPOSITORY = Path(__file__).parents[2]
HOME = REPOSITORY / "build/boards"
INSIDE = "/farrier"  # The path of the repository in the root.
WHEELS = "opt/wheels"
# What tests, conformance and counting import there; their own dependencies come with them.
PACKAGES = (
    *("grpcio", "hypothesis", "llvmlite", "ml_dtypes", "numpy", "onnx", "onnxruntime", "protobuf"),
    *("pytest", "pytest-timeout", "pytest-xdist", "ziglang"),
)
SOURCES = ("compiler", "rpc_device", "farm", "server", "worker", "")
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_TOOLS = {
    "debootstrap": "debootstrap",
    "dpkg-deb": "dpkg",
    "qemu-aarch64-static": "qemu-user-static",
    "unshare": "util-linux",
}
_GLIBC = range(17, 37)  # The versions of glibc whose wheels run on Debian 12.


class NoRootError(UsageError):
    """Error: an arm64 root folder cannot be created here. The message names the missing tool, the
    hint its package."""

    code = "no-root"


class Root:
    """An arm64 root folder, in which commands run. Each command has its own mounts, which end with
    it; the repository is mounted at INSIDE."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last = len(os.sched_getaffinity(0)) - 1

    def start(
        self, words: Sequence[str], cpu: str = board.QEMU_CPU, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start the root's Python with these arguments on an emulated `cpu`; `options` are
        Popen's."""
        inside = ["/usr/bin/env", "-C", INSIDE, "/usr/bin/python3", *words]
        command = ["chroot", str(self.folder), *inside]
        return self._start(command, environment() | {"QEMU_CPU": cpu}, cpu, options)

    def start_counted(
        self, words: Sequence[str], plugin: Path, cpu: str = board.QEMU_CPU, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start the root's Python under a qemu with a plugin, without changing the root directory:
        paths are those of this machine."""
        paths = [str(REPOSITORY / source) for source in SOURCES]
        cache = self.folder / "var/cache/python-outside"
        variables = _variables([*paths, str(self.folder / WHEELS)], str(cache))
        qemu = ["qemu-aarch64", "-L", str(self.folder), "-cpu", cpu, "-plugin", str(plugin)]
        command = [*qemu, str(self.folder / "usr/bin/python3"), *words]
        return self._start(command, variables, cpu, options)

    def _start(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        cpu: str,
        options: Mapping[str, Any],
    ) -> subprocess.Popen[Any]:
        cpuinfo = self.folder.with_name(f"cpuinfo-{cpu.partition(',')[0]}")
        write_text_atomically(cpuinfo, board.cpuinfo(self._last + 1, cpu))
        places = [self.folder, REPOSITORY, INSIDE, cpuinfo, self._last]
        words = ["unshare", "-m", "sh", "-ec", _ENTER, "sh", *map(str, places), *command]
        return subprocess.Popen(words, env=dict(variables), cwd=REPOSITORY, **options)


# The mounts replace the files in which the host's kernel describes another processor.
_ENTER = """
root=$1 repository=$2 inside=$3 cpuinfo=$4 last=$5; shift 5
mkdir -p $root$inside
mount --bind $repository $root$inside
mount --rbind /proc $root/proc
mount --bind $cpuinfo $root/proc/cpuinfo
mount --rbind /dev $root/dev
mount -t tmpfs tmpfs $root/tmp
mount -t tmpfs tmpfs $root/sys
mkdir -p $root/sys/devices/system/cpu
for name in possible present online; do echo 0-$last > $root/sys/devices/system/cpu/$name; done
exec "$@"
"""


def environment() -> dict[str, str]:
    """Return the environment variables for the root's Python."""
    paths = [f"{INSIDE}/{source}".rstrip("/") for source in SOURCES]
    return _variables([*paths, f"/{WHEELS}"], "/var/cache/python")


def _variables(paths: Sequence[str], cache: str) -> dict[str, str]:
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONPYCACHEPREFIX": cache,
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
    }


def root(say: Callable[[str], None], home: Path = HOME) -> Root:
    """Return the root folder below `home`, after creating it if it does not exist. Raises
    NoRootError."""
    find_tools(_TOOLS, "an arm64 root")
    _register()
    folder = home / "root"
    if not (folder / "usr/bin/python3").exists():
        say("unpacking an arm64 Debian")
        _unpack(folder)
    _install(folder, say)
    _name_farrier(folder / WHEELS)
    created = Root(folder)
    started = created.start(
        ["-c", "import numpy"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    text, _ = started.communicate()
    if started.returncode:
        raise NoRootError(
            f"programs of the arm64 root do not run here: {last_words(text.decode())}",
            hint="a container needs the right to mount (CAP_SYS_ADMIN)",
        )
    return created


def find_tools(tools: Mapping[str, str], what: str) -> None:
    """Raise NoRootError if a program in `tools` is missing, with its package, or if this process
    does not run as root."""
    if os.geteuid() != 0:
        raise NoRootError(f"{what} needs mounts and chroot: run it as root")
    missing = sorted(package for tool, package in tools.items() if shutil.which(tool) is None)
    if missing:
        raise NoRootError(
            f"{what} needs {', '.join(missing)}",
            hint=f"apt-get install --no-install-recommends {' '.join(missing)}",
        )


def _register() -> None:
    """Register qemu in the kernel as the interpreter of arm64 programs (binfmt_misc), including
    programs that they start."""
    if platform.machine() == "aarch64" or (_BINFMT / "qemu-aarch64").exists():
        return
    format_ = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
    try:
        if not (_BINFMT / "register").exists():
            command = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)]
            subprocess.run(command, capture_output=True, check=True)
        (_BINFMT / "register").write_text(format_.read_text())
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoRootError(
            f"the kernel cannot be told to run arm64 programs: {error}",
            hint="it needs binfmt_misc, and the right to mount it",
        ) from None


def _unpack(folder: Path) -> None:
    """Download and unpack Debian's packages; the folder appears only when it is complete."""
    mirror, release = _mirror()
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = folder.with_name("root.making")
    shutil.rmtree(making, ignore_errors=True)
    options = ["--variant=minbase", "--arch=arm64", "--foreign", "--include=python3"]
    done = said(["debootstrap", *options, release, str(making), mirror])
    if done.returncode:
        raise NoRootError(f"debootstrap failed: {last_words(done.stdout)}")
    archives = making / "var/cache/apt/archives"
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(making)], check=True)
        package.unlink()
    (making / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (making / "etc/group").write_text("root:x:0:\n")
    making.rename(folder)


def _mirror() -> tuple[str, str]:
    """Return the URL of this machine's package mirror, and the name of its Debian release."""
    fields = "$(ORIGIN)|$(REPO_URI)|$(COMPONENT)|$(CODENAME)"
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if shutil.which("apt-get") is not None:
        done = said(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"])
        for line in done.stdout.splitlines():
            origin, *target_fields = line.split("|")
            if origin == "Debian" and target_fields[1:] == ["main", release]:
                return target_fields[0], release
    raise NoRootError(
        "apt names no Debian mirror of this machine's release",
        hint="run it on Debian, after apt-get update",
    )


def _install(folder: Path, say: Callable[[str], None]) -> None:
    """Install the wheels, unless the required versions are already installed."""
    version = (folder / "usr/bin/python3").resolve().name.removeprefix("python")
    wanted = [_pinned(name) for name in PACKAGES]
    stamp = folder / WHEELS / ".installed"
    if stamp.exists() and stamp.read_text() == "\n".join(wanted):
        return
    say(f"installing {', '.join(PACKAGES)} for its Python {version}")
    shutil.rmtree(folder / WHEELS, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    command += ["--only-binary=:all:", "--python-version", version, "--implementation", "cp"]
    for platform_ in ("2014", *(f"_2_{minor}" for minor in _GLIBC)):
        command += ["--platform", f"manylinux{platform_}_aarch64"]
    done = said([*command, "--target", str(folder / WHEELS), *wanted])
    if done.returncode:
        raise NoRootError(f"pip cannot install wheels for aarch64: {last_words(done.stdout)}")
    stamp.write_text("\n".join(wanted))


def _name_farrier(wheels: Path) -> None:
    """Write package metadata with the version of Farrier's sources, because artifacts contain
    it."""
    version = importlib.metadata.version("farrier")
    folder = wheels / f"farrier-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: farrier\nVersion: {version}\n"
    write_text_atomically(folder / "METADATA", metadata)


def _pinned(name: str) -> str:
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return name


def said(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command with stdout and stderr combined, and return the result; `options` are those of
    `run`."""
    out = subprocess.PIPE
    return subprocess.run(
        command, stdout=out, stderr=subprocess.STDOUT, text=True, check=False, **options
    )


def last_words(text: str) -> str:
    """Return the end of a command's output as a single line."""
    return " ".join(text.split()[-40:])
