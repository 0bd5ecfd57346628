"""Devices come and go before somebody who watches."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.looks import settle

pytestmark = pytest.mark.browser

SOON_MS = 40_000


def test_one_that_is_killed_is_shown_so(page, up, start_device):
    page.goto("/devices")
    settle(page)
    device = start_device(up, "board-1")
    row = page.get_by_role("row", name="board-1")
    expect(row).to_contain_text("idle", timeout=SOON_MS)
    device.kill()
    expect(row).not_to_contain_text("idle", timeout=SOON_MS)
    expect(row).to_contain_text("offline")
