"""Start Python processes with the module path of this one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

_BOOTSTRAP = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {0} import {1}; {1}()"


def command_of(main: Callable[[], object], *words: object) -> list[str]:
    """The command of a process that calls `main`, a function of a module. It finds `words`, each as
    JSON, from `sys.argv[2]` on."""
    code = _BOOTSTRAP.format(main.__module__, main.__name__)
    return [sys.executable, "-c", code, *map(json.dumps, (sys.path, *words))]
