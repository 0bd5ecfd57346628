"""A reader of the documentation, with the files, values and packages that each page expects."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import farrier
from tests.documentation.snippets import Snippet, commands
from tests.frontends.tflite.writer import Writer
from tests.runtime.tiny_llama import HEADS, SIZE, tiny_llama
from tests.targets.dae.models import convolution, inputs
from tests.up import Up, write_model

ROOT = Path(__file__).parents[2]

_MINUTES = "it measures for minutes; tests/bench runs it on small models"
_BOARD = "it needs a board; tests/targets/bare emulates boards"
_AGENT = "it needs an agent; tests/end_to_end starts agents"
_ROLES = "tests/end_to_end/test_up.py starts each role by itself"
_MAKE_CUDA = "it takes minutes; `make cuda` runs it"
_GPU = "it needs a GPU by NVIDIA"

# The first words of commands that no page's test executes, and the reason.
ELSEWHERE = {
    "farrier up": "tests/end_to_end/test_up.py starts it",
    "farrier-device": "it runs until it is stopped; tests/end_to_end starts agents",
    "pip install": "tests/artifact/test_install.py installs packages",
    "make ": "CI runs it, or a part of it",
}

# Tuning takes seconds here, whatever a page allows.
_SHORTER = (
    (r"--budget \w+", "--budget 2s"),
    (r"--trials \d+", "--trials 4"),
    (r"\bbudget_s=\d+", "budget_s=2"),
    (r"\btrials=\d+", "trials=4"),
    (r'"trials": \d+', '"trials": 4'),
)


@dataclass(frozen=True)
class Page:
    """The expectations of a page of its reader.

    `files` write the files that the page names into the current folder. `names` returns variables
    of its programs. `packages` are modules that Farrier's tests do not need. `elsewhere` maps the
    first words of commands that are not executed to the reason.
    """

    files: tuple[Callable[[Up], object], ...] = ()
    names: Callable[[], Mapping[str, Any]] = dict
    packages: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)


class Reader:
    """A user who follows a page in a folder, on the machine of a farm."""

    def __init__(self, up: Up, folder: Path, page: Page) -> None:
        self._up, self._folder, self._page = up, folder, page
        self._names: dict[str, Any] = {}
        self._job = ""
        self._environment = {
            **up.environment,
            "FARRIER_SERVER": up.url,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            # The modules of bench/ are not installed.
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
        }
        for write in page.files:
            write(up)

    def close(self) -> None:
        """Close the clients among the variables of the page's programs."""
        for value in self._names.values():
            if isinstance(value, farrier.Client):
                value.close()

    def follow(self, snippet: Snippet) -> None:
        """Execute a program or commands of the page. A failure raises."""
        if snippet.language == "python":
            self._execute(snippet)
            return
        left_out = (*ELSEWHERE, *self._page.elsewhere)
        executed = [each for each in commands(snippet) if not each.startswith(left_out)]
        if executed:
            self._run("\n".join(executed))

    def _execute(self, program: Snippet) -> None:
        if program.text.startswith(tuple(self._page.elsewhere)):
            return
        with self._client_settings():
            if not self._names:
                self._names = {"farrier": farrier, "np": np, **self._page.names()}
            exec(compile(_shorter(program.text), f"line {program.line}", "exec"), self._names)

    def _run(self, text: str) -> None:
        text = self._replaced(_shorter(text))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        if text.startswith("farrier submit"):
            with self._up.client() as client:
                self._job = client.wait(done.stdout.split()[-1]).id
        if text.startswith("export "):
            name, _, value = text.removeprefix("export ").partition("=")
            self._environment[name] = value

    def _replaced(self, text: str) -> str:
        """Return commands in which the farm's values stand for a page's placeholders."""
        text = re.sub(r"\bJOB\b|\b[0-9a-f]{20}\b", self._job, text)
        text = text.replace("DIR", "dumped")
        if "KERNEL" in text:
            kernel = "$(ls dumped/7-lower-passes | head -1)"
            text = text.replace("KERNEL", kernel)
        if "CLASS" in text or "NAME" in text:
            with self._up.client() as client:
                (device,) = client.devices()
            text = text.replace("CLASS", device.device_class).replace("NAME", device.id)
        if "ed25519:" in text:
            shown = self._up.command("keys", "show").stdout
            text = re.sub(r"ed25519:\S+", shown.split()[0], text)
        return text

    @contextlib.contextmanager
    def _client_settings(self) -> Iterator[None]:
        """Let `farrier.Client()` in this process find the farm, as the command does."""
        before = dict(os.environ)
        os.environ.update({k: v for k, v in self._environment.items() if k.startswith("FARRIER_")})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _shorter(text: str) -> str:
    for pattern, replacement in _SHORTER:
        text = re.sub(pattern, replacement, text)
    return text


def _direction(_up: Up) -> None:
    command = [sys.executable, "-m", "bench.models", "cls", Path("direction.onnx").absolute()]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    np.save("x.npy", np.ones((1, 3, 48, 192), np.float32))


def _net(_up: Up) -> None:
    write_model(Path("model.onnx"))
    np.save("x.npy", np.ones((2, 3, 13, 17), np.float32))


def _net_with_data(_up: Up) -> None:
    model = onnx.load(write_model(Path("model.onnx")))
    onnx.save(model, "m.onnx", save_as_external_data=True, location="m.onnx.data")
    Path("models").mkdir()
    shutil.copy("m.onnx.data", "models")


def _with_a_default(_up: Up) -> None:
    """Write a model whose initializer `bias` is an input as well."""
    x, bias, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("x", "bias", "y")
    )
    weights = [numpy_helper.from_array(np.ones(64, np.float32), "bias")]
    node = helper.make_node("Add", ["x", "bias"], ["y"])
    onnx.save(
        helper.make_model(helper.make_graph([node], "sum", [x, bias], [y], weights)), "model.onnx"
    )


def _signed(up: Up) -> None:
    """Write an artifact that the farm has signed, and the farm's public key."""
    with up.client() as client:
        job = client.wait(client.submit("model.onnx").id)
        client.fetch(job.id, "model.farrier")
    Path("farm.pub").write_text(up.command("keys", "show").stdout.split()[0] + "\n")


def _board(_up: Up) -> None:
    description = {"arch": "aarch64", "cpu": "cortex-a55", "features": ["fp", "asimd"], "cores": 2}
    caches = {"l1_bytes": 32768, "l2_bytes": 131072, "l3_bytes": 1048576}
    Path("board.json").write_text(json.dumps({**description, **caches}))


def _tflite(_up: Up) -> None:
    writer = Writer()
    x, y = (writer.tensor(name, (1, 490)) for name in ("input_1", "Identity"))
    writer.op("RELU", [x], [y])
    Path("kws_ref_model.tflite").write_bytes(writer.model([x], [y]))
    np.save("input.npy", np.ones((1, 490), np.float32))


def _keras(_up: Up) -> None:
    with warnings.catch_warnings(action="ignore"):  # TensorFlow warns of itself.
        keras = importlib.import_module("keras")
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
        model.save("model.keras")
        model.export("saved_model")


def _jax(_up: Up) -> None:
    jax = importlib.import_module("jax")
    exported = jax.export.export(jax.jit(_product))(*_product_arguments())
    Path("model.jax").write_bytes(exported.serialize())


def _decoder(_up: Up) -> None:
    model = tiny_llama()
    for node in model.graph.node:
        node.input[:] = ["input_ids" if name == "ids" else name for name in node.input]
    model.graph.input[0].name = "input_ids"
    onnx.save(model, "decoder.onnx")


def _quantized(_up: Up) -> None:
    model = convolution()
    for name in ("model.onnx", "layer.onnx", "resnet18_int8.onnx"):
        Path(name).write_bytes(model)
    np.save("x.npy", inputs(model)["x"])


def _image() -> Mapping[str, Any]:
    return {"image": np.ones((1, 3, 48, 192), np.float32)}


def _prompt() -> Mapping[str, Any]:
    """Return a prompt, and as the token that ends a text the token that follows the prompt."""
    prompt = np.array([[1, 5, 7]])
    reference = onnxruntime.InferenceSession("decoder.onnx")
    caches = [each.name for each in reference.get_inputs() if each.name != "input_ids"]
    empty = dict.fromkeys(caches, np.zeros((1, HEADS, 0, SIZE), np.float32))
    (token,) = reference.run(["token"], {"input_ids": prompt, **empty})
    return {"prompt": prompt, "end": token[0, -1]}


def _product(params: Mapping[str, Any], x: Any) -> Any:
    return x @ params["w"]


def _product_arguments() -> tuple[dict[str, np.ndarray], np.ndarray]:
    return {"w": np.ones((784, 10), np.float32)}, np.ones((3, 784), np.float32)


def _jax_names() -> Mapping[str, Any]:
    params, x = _product_arguments()
    jax = importlib.import_module("jax")
    return {"jax": jax, "f": _product, "params": params, "x": x, "client": farrier.Client()}


def _torch_names() -> Mapping[str, Any]:
    torch = importlib.import_module("torch")
    return {
        "torch": torch,
        "module": torch.nn.Linear(6, 4),
        "example": torch.ones(3, 6),
        "x": torch.ones(3, 6),
        "batch": torch.export.Dim("batch"),
        "client": farrier.Client(),
    }


PAGES = {
    "README.md": Page(files=(_direction,), names=_image),
    "docs/accelerators.md": Page(
        files=(_quantized,),
        elsewhere={
            "farrier submit": _AGENT,
            "farrier hardware": "`make accelerators` runs it",
            "farrier explore": "tests/cli/test_explore.py runs it",
        },
    ),
    "docs/cuda.md": Page(
        files=(_net,),
        elsewhere={
            "session = ": _GPU,
            "farrier compile model.onnx --target cuda:sm_80 --trials": _GPU,
            "python -m": _MAKE_CUDA,
        },
    ),
    "docs/cuda_kernels.md": Page(elsewhere={"python -m": _MAKE_CUDA}),
    "docs/cuda_proofs.md": Page(elsewhere={"python -m": _MAKE_CUDA}),
    "docs/develop/architecture.md": Page(files=(_net,)),
    "docs/develop/ir.md": Page(files=(_net,)),
    "docs/develop/measuring.md": Page(
        elsewhere={"python -m bench": _MINUTES, "farrier profile": "the guide's page runs it"}
    ),
    "docs/develop/targets.md": Page(
        files=(_net, _board),
        elsewhere={
            "farrier submit": "it needs the board that it describes",
            "from farrier.testing": "tests/targets/test_other_package.py runs the contract",
        },
    ),
    "docs/guide/background.md": Page(
        files=(_net,), names=lambda: {"image": np.ones((1, 3, 13, 17), np.float32)}
    ),
    "docs/guide/classical.md": Page(packages=("pandas", "sklearn", "skl2onnx")),
    "docs/guide/compile.md": Page(
        files=(_decoder, _direction, lambda _: shutil.copy("direction.onnx", "model.onnx")),
        names=lambda: {**_image(), **_prompt()},
    ),
    "docs/guide/models.md": Page(
        files=(_net_with_data, _with_a_default),
        names=lambda: {"message": Path("m.onnx").read_bytes()},
    ),
    "docs/guide/onnxruntime.md": Page(files=(_direction,), names=_image),
    "docs/guide/service.md": Page(files=(_direction,)),
    "docs/guide/states.md": Page(files=(_decoder,), names=_prompt),
    "docs/guide/trust.md": Page(files=(_net, _signed)),
    "docs/jax.md": Page(files=(_jax,), names=_jax_names, packages=("jax", "flatbuffers")),
    "docs/keras.md": Page(files=(_keras,), packages=("keras", "tensorflow", "tf2onnx")),
    "docs/microcontrollers.md": Page(
        files=(_quantized,),
        elsewhere={
            "qemu-system-arm": "tests/targets/bare/test_models.py runs images",
            "farrier submit": _BOARD,
            "cc ": "it runs on the board",
        },
    ),
    "docs/operate/dashboard.md": Page(
        elsewhere={"python -m": "tests/server/dashboard checks the files"}
    ),
    "docs/operate/farm.md": Page(elsewhere={"farrier ": "tests/end_to_end/test_backup.py does it"}),
    "docs/operate/setup.md": Page(
        elsewhere={
            "export ": _ROLES,
            "farrier serve": _ROLES,
            "farrier broker": _ROLES,
            "farrier worker": _ROLES,
            "farrier builder": _ROLES,
            "farrier trainer": _ROLES,
            "farrier probe": _ROLES,
            "FARRIER_ENROL=": _AGENT,
            "scp ": _BOARD,
            "python3 -m venv": _BOARD,
        }
    ),
    "docs/pytorch.md": Page(names=_torch_names, packages=("torch",)),
    "docs/reference/errors.md": Page(
        elsewhere={"farrier doctor": "the farm of these tests has other ports than it assumes"}
    ),
    "docs/tflite.md": Page(files=(_tflite,)),
    "docs/tuning/records.md": Page(files=(_net,)),
    "docs/tuning/tuning.md": Page(
        elsewhere={"python -m": "it measures for an hour; tests/bench/test_tuning.py is small"}
    ),
    "docs/webgpu.md": Page(files=(_net,), elsewhere={"farrier submit": _AGENT}),
}
