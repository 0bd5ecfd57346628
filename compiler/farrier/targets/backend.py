"""A backend: all roles for one family of machines in one object."""

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
    """Makes code for one family of machines, and runs it.

    A backend is a subclass, with one instance; a role answers itself what a machine without
    specialities answers. It keeps no state, and is asked from several threads. Its module imports
    neither code generator nor rules, because loading an artifact imports it too; the methods do.
    """
