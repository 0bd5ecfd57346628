"""A version of the dashboard's files in memory: the file at each URL path, and the content security
policy of each page.

All files are read at once and served from memory, so the path of a request is never used as a path
on disk. The version is a hash of all contents. It is a part of the asset paths in a page, and
modules import each other by relative paths: browsers may cache the assets forever, and no page
mixes two versions.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import hashlib
import re
from pathlib import Path

STATIC = Path(__file__).with_name("static")
ASSETS = "/assets"
SHELL = "index.html"  # The document of every page of the dashboard.
MEDIA_TYPES = {
    "": "text/plain; charset=utf-8",  # licences
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_WORTH_COMPRESSING = 1000  # bytes
_POLICY = (
    "default-src 'none'; script-src 'self'{inline}; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_INLINE_SCRIPT = re.compile(rb"<script\b(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Asset:
    """A file as it is sent to browsers."""

    content: bytes
    media_type: str

    @property
    def is_page(self) -> bool:
        return self.media_type.startswith("text/html")

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def gzipped(self) -> bytes | None:
        """The gzip-compressed content; None if compression saves too little."""
        if len(self.content) < _WORTH_COMPRESSING:
            return None
        packed = gzip.compress(self.content, mtime=0)
        return packed if len(packed) < 0.9 * len(self.content) else None

    @functools.cached_property
    def policy(self) -> str:
        """The Content-Security-Policy of a page. It allows scripts from this server and, by their
        hashes, the page's inline scripts, such as its import map."""
        hashes = (
            base64.b64encode(hashlib.sha256(script).digest()).decode()
            for script in _INLINE_SCRIPT.findall(self.content)
        )
        return _POLICY.format(inline="".join(f" 'sha256-{digest}'" for digest in hashes))


Stamp = tuple[tuple[str, int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """All files of a folder as they were when it was read, by their paths with slashes. Pages such
    as `index.html` are stored separately from the `assets`, because each page has its own URL."""

    version: str
    assets: dict[str, Asset]
    pages: dict[str, Asset]
    stamp: Stamp

    @classmethod
    def read(cls, folder: Path) -> Site:
        files = {
            path.relative_to(folder).as_posix(): Asset(
                path.read_bytes(), MEDIA_TYPES.get(path.suffix, "application/octet-stream")
            )
            for path in _files(folder)
        }
        version = hashlib.sha256(
            "".join(f"{name} {asset.digest}\n" for name, asset in files.items()).encode()
        ).hexdigest()[:16]
        pages = {
            name: Asset(
                page.content.replace(f'"{ASSETS}/'.encode(), f'"{ASSETS}/{version}/'.encode()),
                page.media_type,
            )
            for name, page in files.items()
            if page.is_page
        }
        assets = {name: asset for name, asset in files.items() if name not in pages}
        return cls(version, assets, pages, _stamp(folder))

    def is_current(self, folder: Path) -> bool:
        """Return whether the folder is unchanged since its files were read."""
        return self.stamp == _stamp(folder)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _stamp(folder: Path) -> Stamp:
    stats = ((str(path), path.stat()) for path in _files(folder))
    return tuple((path, stat.st_mtime_ns, stat.st_size) for path, stat in stats)
