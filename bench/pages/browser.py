"""Debian's Chromium, controlled by Playwright, without access to any host but this one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING

from farrier.errors import UsageError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

FLAGS = (
    "--no-sandbox",  # Root may not use Chromium's own sandbox.
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_PACKAGES = ("chromium", "fonts-dejavu-core")


class NoBrowserError(UsageError):
    """Error: the machine has no browser. The message names the missing program, and the hint its
    package."""

    code = "no-browser"


def find_chromium() -> str:
    """Return Chromium's path. Raises NoBrowserError."""
    if importlib.util.find_spec("playwright") is None:
        raise NoBrowserError(
            "the pages are driven by Playwright, which is not installed",
            hint="`make pages` installs it; by hand: pip install -e '.[pages]'",
        )
    program = shutil.which("chromium")
    if program is None:
        raise NoBrowserError(
            "the pages are shown by Chromium, which is not installed",
            hint=f"on Debian, as root: apt-get install {' '.join(_PACKAGES)}",
        )
    return program


def install_chromium(say: Callable[[str], None]) -> str:
    """Return Chromium's path; on Debian as root, install it if it is missing. Raises
    NoBrowserError."""
    apt = shutil.which("apt-get")
    if shutil.which("chromium") is None and apt is not None and os.geteuid() == 0:
        say("installing Debian's chromium")
        for words in (["update"], ["install", "-y", "--no-install-recommends", *_PACKAGES]):
            done = subprocess.run(
                [apt, "-qq", *words],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
                raise NoBrowserError(f"apt-get {words[0]} failed: {last}")
    return find_chromium()


def launch(playwright: Playwright) -> Browser:
    """Start a headless Chromium with an empty profile. Raises NoBrowserError."""
    return playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
