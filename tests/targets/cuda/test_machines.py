"""GPUs that have a name: their figures, and the architecture of code for them."""

from __future__ import annotations

import pytest

from farrier.targets import parse_target
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.machines import FIGURES, figures_of
from farrier_device import cuda_library


@pytest.mark.parametrize("name", FIGURES)
def test_a_gpu_with_a_name_has_figures_a_source_and_code_of_its_architecture(name):
    figures, target = FIGURES[name], parse_target(name)
    assert figures.source
    assert target.architecture == figures.architecture
    assert target.backend.peaks(target, 1).operations == figures.operations > 1e12
    assert figures_of(f"{figures.cpu} 80GB HBM3") == figures


def test_peaks_are_those_that_are_published():
    """In teraflops of f32, by the datasheets of NVIDIA."""
    published = {"t4": 8.1, "a10": 31.2, "a100": 19.5, "rtx-3090": 35.6, "rtx-4090": 82.6}
    published |= {"l4": 30.3, "h100": 66.9, "h200": 66.9, "b200": 75.0, "rtx-5090": 104.8}
    for name, teraflops in published.items():
        assert FIGURES[f"cuda:{name}"].operations == pytest.approx(1e12 * teraflops, rel=0.01)


def test_other_gpus_of_a_similar_name_are_not_known():
    assert figures_of("NVIDIA A100-SXM4-40GB") == FIGURES["cuda:a100"]
    assert figures_of("NVIDIA A10") == FIGURES["cuda:a10"]
    assert figures_of("NVIDIA L40S") is None


def test_a_gpu_runs_code_for_earlier_architectures():
    assert tuple(ARCHITECTURES) == cuda_library.ARCHITECTURES
    assert cuda_library.runnable(8, 7) == ("sm_75", "sm_80", "sm_86")
    everything = cuda_library.ARCHITECTURES
    assert cuda_library.runnable(12, 0) == tuple(each for each in everything if each != "sm_90a")
    assert cuda_library.runnable(9, 0) == everything[: everything.index("sm_90a") + 1]


def test_an_architecture_is_ranked_by_the_gpu_that_stands_for_it():
    for name in ARCHITECTURES:
        target = parse_target(f"cuda:{name}")
        assert target.architecture == name
        assert target.backend.device(target)[1].units > 1
