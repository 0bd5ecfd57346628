"""The types of runner that an agent may have."""

from __future__ import annotations

from typing import TypeAlias

from farrier_device.runners.boards import BoardRunner
from farrier_device.runners.local import ChildRunner

AnyRunner: TypeAlias = ChildRunner | BoardRunner
