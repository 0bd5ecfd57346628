"""Start Python processes with the module path of this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

_BOOTSTRAP = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {0} import {1}; {1}()"


def command_of(main: Callable[[], object], *words: object) -> list[str]:
    """Return the command line of a process that calls `main`, a function of a module. The process
    receives each of `words` as JSON in `sys.argv`, from index 2 on."""
    code = _BOOTSTRAP.format(main.__module__, main.__name__)
    return [sys.executable, "-c", code, *map(json.dumps, (sys.path, *words))]
