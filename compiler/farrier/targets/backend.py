"""The class of backends. A backend compiles for one family of machines, such as all x86-64 CPUs,
and combines all roles that the other modules of this package declare."""

from __future__ import annotations

from typing import Protocol

from farrier.targets.code import CodeGeneration
from farrier.targets.describing import Describing
from farrier.targets.exporting import Exporting
from farrier.targets.graph_policy import GraphPolicy
from farrier.targets.running import Running
from farrier.targets.scheduling import Scheduling
from farrier.targets.siting import Siting


class Backend(
    Describing, GraphPolicy, Siting, Scheduling, CodeGeneration, Running, Exporting, Protocol
):
    """The base class of backends: it compiles for one family of machines, and runs the code there.

    Each backend is a subclass with a single, stateless instance, whose methods are called from
    several threads. A role's method has a default for machines that do not need it. The module of a
    backend must not import its code generator or schedule rules at the top, because loading an
    artifact imports the module too; methods import them when called.
    """
