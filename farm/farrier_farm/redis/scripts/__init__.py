"""The scripts that Redis runs, each as one atomic change. Several files make one script."""

from __future__ import annotations

from importlib import resources


def read_scripts(*names: str) -> str:
    """Return the text of `<name>.lua` of each name, in that order."""
    folder = resources.files(__package__)
    return "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
