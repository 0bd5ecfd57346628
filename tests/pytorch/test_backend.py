"""Modules of PyTorch, exported and through `torch.compile`, compared with torch itself."""

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError, UsageError

torch = pytest.importorskip("torch", reason="needs torch: make frontends installs it")


class Net(torch.nn.Module):
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
