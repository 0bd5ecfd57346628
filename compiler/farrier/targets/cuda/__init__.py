"""NVIDIA's GPUs through CUDA: PTX for one architecture, made by LLVM."""

from farrier.targets.cuda.backend import BACKEND

__all__ = ["BACKEND"]
