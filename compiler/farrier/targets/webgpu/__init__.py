"""The backend for GPUs of all vendors through WebGPU: kernels in WGSL that keep the default limits,
which every adapter supports."""

from farrier.targets.webgpu.backend import BACKEND

__all__ = ["BACKEND"]
