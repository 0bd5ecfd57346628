"""The Lua scripts that Redis runs, each as one atomic change. A script may be concatenated from
several files."""

from __future__ import annotations

from importlib import resources


def read_scripts(*names: str) -> str:
    """Return the concatenated text of the files `<name>.lua`, in the order of `names`."""
    folder = resources.files(__package__)
    return "\n".join(folder.joinpath(f"{name}.lua").read_text() for name in names)
