"""Modules of PyTorch, exported and through `torch.compile`, compared with torch itself."""

import os
import subprocess
import sys

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError, UsageError
from tests.waiting import wait_until

torch = pytest.importorskip("torch", reason="needs torch: make frontends installs it")


class Net(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8, 10)
        self.scale = torch.nn.Parameter(torch.ones(10))

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3)).reshape(x.shape[0], -1)
        return torch.softmax(self.linear(y) * self.scale, -1)


def test_a_module_with_an_open_batch():
    net = Net().eval()
    batch = torch.export.Dim("batch", min=1, max=9)
    example = (torch.randn(2, 3, 8, 8),)
    artifact = farrier.compile(net, args=example, dynamic_shapes=({0: batch},), verify=False)
    x = torch.randn(5, 3, 8, 8)
    result = artifact.session().run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(result, net(x).detach().numpy(), atol=1e-6)


def test_a_module_needs_arguments():
    with pytest.raises(UsageError, match="example arguments"):
        farrier.compile(Net())


def test_an_export_that_fails_names_the_line():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(UnsupportedOperatorError, match=r"test_backend\.py:\d+"):
        farrier.compile(Branching(), args=(torch.ones(2),))


def test_a_changing_batch_compiles_twice():
    from farrier.pytorch import backend

    torch._dynamo.reset()
    backend.GRAPHS.clear()
    net = Net().eval()
    compiled = torch.compile(net, backend=backend.farrier)
    with torch.no_grad():
        for batch in (2, 3, 7, 5):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(compiled(x), net(x), atol=1e-6, rtol=1e-5)
    assert [graph.reason for graph in backend.GRAPHS] == ["", ""]


def test_no_change_of_weights_is_missed():
    from farrier.pytorch import backend

    torch._dynamo.reset()
    torch.manual_seed(0)
    net = Net().eval()
    compiled = torch.compile(net, backend=backend.farrier)
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        for change in range(100):
            parameter = list(net.parameters())[change % 7]
            match change % 4:
                case 0:
                    parameter.mul_(1.1)
                case 1:
                    net.scale = torch.nn.Parameter(torch.randn(10))
                case 2:
                    parameter.data.copy_(torch.randn_like(parameter))
                case 3:
                    state = net.state_dict().items()
                    net.load_state_dict({k: torch.rand_like(v.float()) for k, v in state})
            torch.testing.assert_close(compiled(x), net(x), atol=1e-5, rtol=1e-4)


def test_gradients_are_those_of_torch():
    from farrier.pytorch import backend

    torch._dynamo.reset()
    x = torch.randn(3, requires_grad=True)
    torch.compile(lambda a: (a * a).sum(), backend=backend.farrier)(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def compiled(module, **options):
    from farrier.pytorch import backend

    torch._dynamo.reset()
    backend.GRAPHS.clear()
    return torch.compile(module, backend=backend.farrier, options=options or None), backend


def test_frozen_weights_that_change_are_not_missed():
    torch.manual_seed(0)
    net = Net().eval()
    frozen, backend = compiled(net, freeze=True)
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        for change in range(12):
            torch.testing.assert_close(frozen(x), net(x), atol=1e-5, rtol=1e-4)
            match change % 3:
                case 0:
                    net.linear.weight.mul_(1.1)
                case 1:
                    net.scale = torch.nn.Parameter(torch.randn(10))
                case 2:
                    net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})
    assert {graph.reason for graph in backend.GRAPHS} == {""}


def test_a_frozen_graph_that_writes_a_weight():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    net = Counting()
    frozen, _ = compiled(net, freeze=True)
    with torch.no_grad():
        results = [frozen(torch.ones(2))[0].item() for _ in range(4)]
    assert results == [1, 2, 3, 4]
    assert net.calls.item() == 4


def test_another_process_compiles_while_the_graph_runs_in_eager_mode():
    net = Net().eval()
    function, backend = compiled(net, background=True)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        first = function(x)
        (graph,) = backend.GRAPHS
        assert graph.reason == "another process compiles it"
        assert torch.equal(first, net(x))
        wait_until(lambda: not graph.reason)
        torch.testing.assert_close(function(x), net(x), atol=1e-6, rtol=1e-5)


PROGRAM = """
import sys, torch
from farrier.pytorch import backend, compiling
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.GELU()).eval()
if sys.argv[1] == "kept":
    compiling.exported = None
options = {"freeze": sys.argv[2] == "frozen"}
function = torch.compile(net, backend=backend.farrier, options=options)
with torch.no_grad():
    for batch in (2, 3, 7):
        x = torch.randn(batch, 5)
        torch.testing.assert_close(function(x), net(x), atol=1e-6, rtol=1e-5)
print([graph.reason for graph in backend.GRAPHS])
"""


@pytest.mark.parametrize("weights", ["frozen", "inputs"])
def test_code_is_kept_for_other_processes(tmp_path, weights):
    environment = {**os.environ, "FARRIER_CACHE": str(tmp_path)}
    for call in ("first", "kept"):
        command = [sys.executable, "-c", PROGRAM, call, weights]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.stdout.strip() == "['', '']", done.stderr


def test_sizes_are_results_across_a_graph_break():
    def function(x):
        y, rows = torch.relu(x), x.shape[0]
        torch._dynamo.graph_break()
        return y.reshape(-1, 1).sum() / rows  # Here `rows` is a number of its own.

    broken, backend = compiled(function)
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.ones(rows, 2)
            torch.testing.assert_close(broken(x), function(x))
    reasons = {graph.reason for graph in backend.GRAPHS}
    assert reasons == {"", "a number is an argument, and not a size of a tensor"}


def test_sizes_beyond_the_codes_range_run_in_eager_mode():
    double, _ = compiled(lambda x: x * 2)
    with torch.no_grad():
        for size in (2, 3, 1 << 17):
            x = torch.ones(size)
            assert torch.equal(double(x), x * 2)


def test_modes_are_those_of_torch():
    from farrier.pytorch.settings import settings_of

    assert settings_of("reduce-overhead", None) == settings_of(None, {})
    assert settings_of("max-autotune", {"threads": 2}).options.tunes
    assert not settings_of("max-autotune", {"budget_s": 0}).options.tunes
    with pytest.raises(UsageError, match="no mode 'fast'"):
        settings_of("fast", None)
    with pytest.raises(UsageError, match="no options fuse, speed"):
        settings_of(None, {"speed": 1, "fuse": True, "freeze": True})


@pytest.mark.parametrize("norm_first", [True, False])
def test_layers_of_encoders_are_compiled(norm_first):
    options = {"batch_first": True, "norm_first": norm_first, "activation": "gelu"}
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, **options)
    net = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    function, backend = compiled(net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        x = torch.randn(3, 7, 32)
        torch.testing.assert_close(function(x), net(x), atol=1e-5, rtol=1e-4)
    assert [graph.reason for graph in backend.GRAPHS] == [""]
