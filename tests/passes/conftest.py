"""Shared by the tests of passes: helper modules beside them, and the tool that rewrites goldens."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def update_golden(request):
    return request.config.getoption("--update-golden")
