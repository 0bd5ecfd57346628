"""Pictures of every page: light, dark, and as a phone shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.pages.figures import complete, enter

DESK = {"width": 1280, "height": 800}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": DESK},
    "dark": {"color_scheme": "dark", "viewport": DESK},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
    },
}
_COLOURS = 128
_TALLEST = 2400  # pixels: of a longer page, the beginning


def take(browser: Any, url: str, token: str, places: Mapping[str, str], folder: Path) -> None:
    """Writes `PAGE-LOOK.png` for each page and look to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for look, options in LOOKS.items():
        page = enter(browser, url, token, **options)
        for name, place in places.items():
            page.goto(url + place)
            complete(page)
            page.wait_for_timeout(1000)  # charts, graphs
            path = folder / f"{name}-{look}.png"
            height = min(page.evaluate("document.documentElement.scrollHeight"), _TALLEST)
            width = options["viewport"]["width"]
            clip = {"x": 0, "y": 0, "width": width, "height": height}
            path.write_bytes(page.screenshot(full_page=True, clip=clip, animations="disabled"))
            _shrink(path)
        page.context.close()


def _shrink(path: Path) -> None:
    """Gives the picture a palette."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
