"""GPUs of all vendors through WebGPU: WGSL within the default limits that every adapter has."""

from farrier.targets.webgpu.backend import BACKEND

__all__ = ["BACKEND"]
