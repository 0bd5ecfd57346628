"""Shared by the tests of passes: helper modules beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
