"""Compilation of LLVM text to object files through llvmlite, for any machine that LLVM supports."""

from __future__ import annotations

from farrier.llvm.objects import LLVMMachine, assembly, initialized, joined_object, object_of

__all__ = ["LLVMMachine", "assembly", "initialized", "joined_object", "object_of"]
