"""The command line of the device agent."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from farrier_device import cooling, logs


def parser() -> argparse.ArgumentParser:
    """Return the parser of the agent's command line."""
    parser = argparse.ArgumentParser(
        prog="farrier-device",
        description="Measure native code on this machine for a Farrier farm.",
    )
    _add_identity(parser)
    _add_state(parser)
    _add_measuring(parser)
    _add_other_machines(parser)
    return parser


def _add_identity(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the farm and this device."""
    add = parser.add_argument
    add("--broker", required=True, metavar="HOST:PORT", help="address of the farm's broker")
    add(
        "--enrol",
        default=os.environ.pop("FARRIER_ENROL", ""),  # Child processes must not inherit the token.
        metavar="TOKEN",
        help="enrolment token from `farrier devices add NAME`, needed at the first start "
        "only [env FARRIER_ENROL]",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that the farm's devices share, for a device that is not enrolled",
    )
    add(
        "--name",
        default="",
        help="name of this device, unique in the farm (default: the name it is enrolled "
        "under, or the host name)",
    )
    add(
        "--machine",
        default="",
        metavar="NAME|FILE.json",
        help="description of this machine, if it cannot be detected: a name from `farrier "
        "targets` such as rpi4, or a JSON file",
    )


def _add_state(parser: argparse.ArgumentParser) -> None:
    """Add the options for the device's folder and for the connection's certificates."""
    add = parser.add_argument
    add(
        "--state",
        required=True,
        type=Path,
        metavar="DIR",
        help="directory for the device's secret, cached blobs and unsent results",
    )
    add(
        "--tls-ca",
        type=Path,
        metavar="FILE",
        help="CA certificates (PEM) that the broker's certificate is verified against",
    )
    add(
        "--tls-name",
        metavar="NAME",
        help="name to expect in the broker's certificate (default: HOST of --broker)",
    )


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add the options for how this machine measures, and for its limits."""
    add = parser.add_argument
    add(
        "--require-sandbox",
        default="",
        metavar="LAYERS",
        help="refuse to measure unless the sandbox has all these layers, such as seccomp+landlock",
    )
    add(
        "--store-bytes",
        type=int,
        default=4 << 30,
        metavar="BYTES",
        help="disk space for blobs, in bytes (default: 4 GiB)",
    )
    add(
        "--log",
        choices=logs.FORMS,
        default="text",
        help="format of the log on standard error (default: text)",
    )
    add(
        "--cool-s",
        type=float,
        default=cooling.LONGEST_S,
        metavar="SECONDS",
        help="seconds to wait at most, before a batch, for a hot machine to cool; 0 "
        "measures at once (default: 120)",
    )
    add(
        "--engines",
        action="store_true",
        help="let jobs compare the speed of their compiled models with that of the other "
        "engines installed here (pip install 'farrier[device,engines]'), which run the "
        "jobs' models",
    )
    add("--no-pin", action="store_true", help="do not pin measuring threads to CPUs")


def _add_other_machines(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options that select a measuring machine other than this one."""
    add = parser.add_argument
    add(
        "--adapter",
        metavar="NAME",
        help="measure on this GPU instead of the processor; '' selects the first GPU (pip "
        "install 'farrier[device,webgpu]'); 'cuda:NAME' selects a GPU through CUDA, such "
        "as 'cuda:NVIDIA L4'",
    )
    add("--serial", default="", metavar="PORT", help="measure on the board at this serial port")
    add(
        "--baud",
        type=int,
        default=115200,
        help="speed of the serial port in baud (default: 115200)",
    )
    add(
        "--board",
        default="",
        metavar="NAME",
        help="name that the board must report (default: any board is accepted)",
    )
    add(
        "--qemu",
        default="",
        metavar="BOARD",
        help="measure on this board, emulated by QEMU",
    )
    add(
        "--firmware",
        type=Path,
        metavar="DIR",
        help="directory that `farrier firmware` wrote for the emulated board (default: "
        "written at the start)",
    )
    add(
        "--simulate",
        default="",
        metavar="NAME|FILE",
        help="measure in the simulator of this accelerator: a name from `farrier targets` "
        "such as dae:vta, or a description in TOML or JSON (pip install 'farrier[device]')",
    )
