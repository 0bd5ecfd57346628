"""Convert functions of JAX and their exports to the text of a StableHLO module in MLIR's generic
form."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.errors import UnsupportedOperatorError, UsageError
from farrier.frontends.onnx.model.file import Model

_BYTECODE = b"ML\xefR"
_DIMS = "farrier.dims"  # The attribute that `frontends/stablehlo/interface.py` reads.
_ARGUMENTS = 'farrier.compile(jax.jit(f), args=(x,), dynamic_shapes=("batch, ...",))'


def is_jax(model: object) -> bool:
    """Check whether an object is a compiled function of JAX, or an exported function, without
    importing jax."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    from jax import export, stages

    return isinstance(model, stages.Wrapped | export.Exported)


def exported(
    model: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Model:
    """Return the StableHLO module of a JAX function, which is exported with its example arguments,
    or of an existing export.

    `dynamic_shapes` are the shapes of the positional arguments in the syntax of
    `jax.export.symbolic_args_specs`: one text for all, or one for each argument. Raises UsageError
    without example arguments, and UnsupportedOperatorError if JAX cannot export the function.
    """
    from jax import export

    if isinstance(model, export.Exported):
        return Model.of_bytes(text_of(model).encode(), model.fun_name)
    if args is None and not kwargs:
        raise UsageError(
            "a function of JAX is exported with example arguments, and there are none",
            hint=_ARGUMENTS,
        )
    positional = tuple(args or ())
    name = str(getattr(model, "__name__", "model"))
    try:
        if dynamic_shapes is not None:
            positional = export.symbolic_args_specs(positional, dynamic_shapes)
        whole = export.export(model)(*positional, **dict(kwargs or {}))
    except Exception as error:  # Errors of tracing have no common base.
        raise UnsupportedOperatorError(
            f"jax.export cannot export {name}: {_first_line(error)}",
            hint="jax.jit(f).lower(*args) tells more",
        ) from error
    return Model.of_bytes(text_of(whole).encode(), name)


def text_of(exported: Any) -> str:
    """Return the text of an exported function's module, including the names of open dims."""
    from jax.extend.mlir import ir
    from jax.interpreters import mlir

    shapes = [exported.in_avals[place].shape for place in exported.module_kept_var_idx]
    with mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        main = next(
            function
            for function in module.body.operations
            if ir.StringAttr(function.attributes["sym_name"]).value == "main"
        )
        if len(main.arguments) == len(shapes):
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(
                [
                    ir.DictAttr.get({_DIMS: ir.StringAttr.get(", ".join(map(str, shape)))})
                    for shape in shapes
                ]
            )
        return _generic(module)


def text_of_bytes(data: bytes) -> str:
    """Return the text of a module in a file: MLIR bytecode, or the result of `Exported.serialize`.
    Raises UsageError if it is neither, or is damaged."""
    from jax import export
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo
    from jax.interpreters import mlir

    if not data.startswith(_BYTECODE):
        try:
            return text_of(export.deserialize(bytearray(data)))
        except ImportError as error:  # JAX does not ask for it when it is installed.
            raise ModuleNotFoundError(str(error), name="flatbuffers") from error
        except Exception as error:  # The reader of flatbuffers has no error of its own.
            raise UsageError(
                "it is neither MLIR bytecode nor a serialized export of JAX",
                hint="farrier convert takes files of jax.export.Exported.serialize()",
            ) from error
    with mlir.make_ir_context() as context:
        try:
            return _generic(stablehlo.deserialize_portable_artifact(context, data))
        except (ValueError, ir.MLIRError):  # The latter is for bytecode of other dialects.
            pass
        try:
            return _generic(ir.Module.parse(data))
        except (ValueError, ir.MLIRError) as error:
            raise UsageError(
                f"it is MLIR bytecode that this JAX cannot read: {' '.join(str(error).split())}",
                hint="write the file again, or install the JAX that has written it",
            ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _generic(module: Any) -> str:
    return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
