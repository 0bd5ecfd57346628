"""Share the helper modules of the tests of neutral passes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "passes"))
