"""The backend for x86-64, from SSE4.2 to AVX-512 and AMX."""

from __future__ import annotations

from farrier.targets.x86.backend import BACKEND, X86Backend, X86Target

__all__ = ["BACKEND", "X86Backend", "X86Target"]
