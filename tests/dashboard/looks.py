"""Checks that apply to every page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import expect

_AXE = Path(__file__).parent / "vendor/axe.min.js"


def settle(page: Any) -> None:
    """Wait until the page shows all that it has to say."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def faults(page: Any) -> list[str]:
    """Return the serious and critical violations that axe-core finds, a line each."""
    page.evaluate(_AXE.read_text())
    report = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']} ({fault['impact']}): {node['html'][:200]}\n  {node['failureSummary'][:300]}"
        for fault in report["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def wider(page: Any) -> list[str]:
    """Return the elements that exceed the screen, if the page scrolls sideways."""
    return page.evaluate(
        """() => {
            const screen = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= screen) return [];
            return [...document.querySelectorAll('body *')]
                .filter((one) => one.getBoundingClientRect().right > screen + 1)
                .map((one) => one.outerHTML.slice(0, 120));
        }"""
    )
