"""The tutorial works as it stands: its programs and commands run in order, with a service."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()


def _script(folder: Path) -> str:
    """Return the commands of the page; write each program to the file that its first line names."""
    commands = []
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if language == "sh":
            commands.append(block)
        else:
            (folder / re.match(r"# (\w+\.py)\n", block)[1]).write_text(block)
    return "".join(commands)


@pytest.mark.slow  # `make docs` runs it. A dozen commands take half a minute.
def test_the_steps_of_the_tutorial_work_one_after_another(up, tmp_path):
    script = 'farrier() { python -m farrier.cli "$@"; }\n' + _script(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euxc", script],
        cwd=tmp_path,
        env={**up.environment, "FARRIER_SERVER": up.url, "PATH": path},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = {path.name for path in tmp_path.glob("*.farrier")}
    assert kept == {
        "network.farrier",
        "tuned.farrier",
        "network-rpi5.farrier",
        "network-m4.farrier",
    }
    assert (tmp_path / "firmware/network.h").exists()
