"""`make demo`: the main use of the service on a trained network, from the upload to a race.

    python -m bench.demo [--budget 60s] [--model FILE --shape NAME=1,3,224,224] [--keep]

It starts the complete service with a temporary home folder, uploads the text-direction classifier
of the PyPI wheel `rapidocr-onnxruntime` (or FILE), tunes it for a minute, prints the progress,
downloads the artifact, and races it against the same model compiled without tuning and against ONNX
Runtime. With `--keep` the service runs until Ctrl-C, and its dashboard shows the job.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console

import farrier
from bench import models
from farrier.bench.race import Entrant, race
from farrier.cli.local import figures_table
from farrier.cli.show import ProgressView
from farrier.errors import FarrierError, ServiceError
from farrier.options import parse_budget
from farrier.options.shapes import GivenShape, parse_shapes
from farrier.packaging.draws import random_inputs
from farrier.runtime.loaded_model import check_runs_here
from farrier.sdk.client import Client, StateChanged

MODEL = "cls"
SHAPE = "x=1,3,48,192"
BUDGET = "60s"

Shapes = dict[str, GivenShape]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.demo")
    parser.add_argument("--budget", default=BUDGET, help="time to tune")
    parser.add_argument("--model", type=Path, help="an ONNX file instead")
    parser.add_argument("--shape", action="append", help="of an input of FILE; repeatable")
    parser.add_argument("--keep", action="store_true", help="leave the service up until Ctrl-C")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="farrier-demo-") as folder:
        home = Path(folder)
        try:
            budget_s = parse_budget(arguments.budget)
            model, shapes = arguments.model, parse_shapes(arguments.shape or [])
            if model is None:
                model, shapes = models.rapidocr(MODEL), parse_shapes([SHAPE])
            console.print(f"model: {model.name}, shapes {shapes}")
            with Service(home, console) as service:
                demonstrate(model, shapes, budget_s, service, home, console)
                if arguments.keep:
                    service.keep()
                else:
                    console.print(
                        f"the dashboard was {service.url}/: `make demo KEEP=1` leaves it up"
                    )
        except FarrierError as error:
            console.print(f"demo failed: {error}", style="red", markup=False)
            return error.exit_code
    return 0


def demonstrate(
    model: Path,
    shapes: Shapes,
    budget_s: float,
    service: Service,
    folder: Path,
    console: Console,
) -> None:
    """Upload a model, tune it, print the progress, download the artifact, and race it."""
    tuned, untuned = folder / "tuned.farrier", folder / "untuned.farrier"
    with Client(service.url, service.token) as client:
        job = client.submit(model, target="host", shapes=shapes, budget_s=budget_s)
        console.print(f"job {job.id}: tuning for {budget_s:.0f} s")
        with ProgressView(console) as view:
            for update in client.watch(job.id):
                if not isinstance(update, StateChanged):
                    view(update)
        job = client.job(job.id)
        job.raise_for_state()
        client.fetch(job.id, tuned)
    console.print(f"downloaded {tuned.stat().st_size / 1e6:.1f} MB")
    farrier.compile(model, shapes=shapes).save(untuned)
    artifact = farrier.load(tuned)
    figures = race(
        [
            Entrant("farrier:tuned", tuned),
            Entrant("farrier:untuned", untuned),
            Entrant("onnxruntime", model),
        ],
        random_inputs(artifact.manifest.inputs),
        threads=check_runs_here(artifact.manifest),
        rounds=10,
    )
    tuned_first, untuned_second, others = figures[0], figures[1], figures[2:]
    console.print(figures_table([untuned_second, tuned_first, *others]))
    console.print("ratio: latency of the tuned artifact over this engine's, median of 10 rounds")


class Service:
    """A process that runs `farrier up`; a context manager, which stops it as Ctrl-C would."""

    def __init__(self, home: Path, console: Console, broker_port: int = 0) -> None:
        """Prepare the service without starting it. Devices connect to `broker_port`; 0 means any
        free port."""
        self._broker_port = broker_port
        self._home = home
        self._console = console
        self.url = ""
        self.token = ""
        self._whereabouts = ""

    def __enter__(self) -> Service:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FARRIER_")}
        environment["PYTHONUNBUFFERED"] = "1"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "farrier.cli", "up", "--home", str(self._home)),
                *("--port", "0", "--broker-port", str(self._broker_port)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        said = self._await_token()
        if not self.token:
            self._process.wait()
            raise ServiceError(f"`farrier up` did not start: {said}")
        self._console.print(f"dashboard: {self.url}/, log in with the token {self._whereabouts}")
        # Nobody reads its output from here on, but a full pipe would stop it.
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._drainer.start()
        return self

    def _await_token(self) -> str:
        said = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said += line
            if match := re.search(r"up at (\S+)", line):
                self.url = match[1]
            if match := re.search(r"^token: (\S+) \((.*)\)", line):
                self.token, self._whereabouts = match[1], match[2]
                break
        return said.strip()

    def _drain(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for _ in said:
                pass

    def keep(self) -> None:
        """Wait for Ctrl-C or SIGTERM. Raises ServiceError if the service ends on its own."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._console.print(
            f"the dashboard is {self.url}/; log in with the token {self._whereabouts}; "
            "Ctrl-C ends the service and removes what it kept"
        )
        try:
            self._process.wait()
        except KeyboardInterrupt:
            return
        raise ServiceError("`farrier up` ended by itself")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._drainer.join(60)


if __name__ == "__main__":
    sys.exit(main())
