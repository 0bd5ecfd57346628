"""`SessionOptions` and `RunOptions` of ONNX Runtime's API, and which options have an effect.

An option has one of four effects. It is honoured. Or it is accepted silently, because it cannot
change anything visible to a program (arenas, levels of optimization). Or it is ignored with a
warning that names it. Or, if ignoring it would change results, it is an error.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from farrier.errors import UsageError
from farrier.onnxruntime.errors import refused


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """A base class with a fixed set of typed attributes, and free text entries."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _values: dict[str, Any]
    _entries: dict[str, str]

    def __init__(self) -> None:
        vars(self).update(_values=dict(self._defaults), _entries={})

    def __getattr__(self, name: str) -> Any:
        values = vars(self).get("_values", {})
        if name not in values:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        default = getattr(self, name)  # raises AttributeError
        if isinstance(default, enum.IntEnum):
            members: dict[str, Any] = dict(type(default).__members__)
            # ONNX Runtime's enumerations have members of the same names.
            if getattr(value, "name", None) not in members:
                raise TypeError(f"{name} is one of {', '.join(members)}, not {value!r}")
            value = members[value.name]
        elif isinstance(value, bool) is not isinstance(default, bool) or not isinstance(
            value, type(default)
        ):
            raise TypeError(f"{name} is {type(default).__name__}, not {value!r}")
        self._values[name] = value

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"an entry is two strings, not {key!r} and {value!r}")
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise refused(UsageError, "RuntimeError", f"there is no entry with the key {key!r}")
        return self._entries[key]


class SessionOptions(_Options):
    """The options of a session.

    Honoured: `intra_op_num_threads` (0: one per core), `log_severity_level` (3 and more silences
    Farrier's warnings), `add_free_dimension_override_by_name`. `docs/guide/onnxruntime.md` has the
    rest.
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(_sizes={}, _ignored=[])

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store a configuration entry. No entry has an effect in Farrier, and a session warns of
        it."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return the entry `key` of the configuration. Raises RuntimeError if it is not set."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the dim that the model calls `name` at `size`."""
        if not isinstance(name, str) or isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"a name and a number, not {name!r} and {size!r}")
        if size < 0:
            raise refused(UsageError, "InvalidArgument", f"the dim {name!r} cannot have {size}")
        vars(self)["_sizes"][name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Ignore the override: the dim stays open."""
        vars(self)["_ignored"].append(f"the size of dims denoted {denotation!r}")

    def add_initializer(self, name: str, value: object) -> None:
        """Raise NotImplemented: initializers come from the file of the model."""
        raise _lacking("initializers from outside the model", "put them into the model's file")

    def add_external_initializers(self, names: object, values: object) -> None:
        """Raise NotImplemented: initializers come from the file of the model."""
        raise _lacking("initializers from outside the model", "put them into the model's file")

    def register_custom_ops_library(self, path: str) -> None:
        """Raise NotImplemented: operators do not come from shared libraries."""
        raise _lacking(
            f"operators from a library ({path})", "docs/reference/operators.md lists Farrier's"
        )

    def add_provider(self, name: str, options: object = None) -> None:
        """Record that the provider is ignored, for a warning: all providers of a session are
        Farrier's."""
        vars(self)["_ignored"].append(f"the provider {name}")

    def has_providers(self) -> bool:
        """Return False: providers are passed as an argument of the session."""
        return False


class RunOptions(_Options):
    """The options of a call. `terminate` is honoured: it ends a call before it starts."""

    _defaults: ClassVar[dict[str, Any]] = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set the entry `key` of the configuration of a call."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return the entry `key` of a call. Raises RuntimeError if it is not set."""
        return self._get(key)


# Options whose absence a program may notice, each with the behaviour that applies. The other
# options are about memory, logs, or ways of working that Farrier does not have.
_NOTICED = {
    "enable_profiling": "farrier profile times every kernel of an artifact",
    "execution_mode": "kernels run one after another, each on all threads",
    "graph_optimization_level": "all passes run",
    "inter_op_num_threads": "kernels run one after another, each on all threads",
    "optimized_model_filepath": "nothing is written there",
}


def not_applied(options: Any) -> list[str]:
    """Return descriptions of the options in a SessionOptions (Farrier's or ONNX Runtime's) that are
    set but have no effect, each with the behaviour that applies instead."""
    defaults = SessionOptions._defaults
    ignored = [
        f"{name} ({reason})"
        for name, reason in _NOTICED.items()
        if _is_other(getattr(options, name, defaults[name]), defaults[name])
    ]
    if isinstance(options, SessionOptions):
        ignored += [f"the entry {key}" for key in options._entries] + vars(options)["_ignored"]
    elif options is not None:
        ignored.append(
            "free dimensions, entries and initializers, where this onnxruntime.SessionOptions has "
            "any (it does not tell: farrier.SessionOptions does)"
        )
    return ignored


def fixed_sizes(options: Any) -> dict[str, int]:
    """Return the sizes of dims that are fixed by name."""
    return dict(vars(options)["_sizes"]) if isinstance(options, SessionOptions) else {}


def _is_other(value: Any, default: Any) -> bool:
    if isinstance(default, enum.IntEnum):
        return bool(getattr(value, "name", default.name) != default.name)
    return bool(value != default)


def _lacking(what: str, way_out: str) -> Exception:
    return refused(UsageError, "NotImplemented", f"Farrier takes no {what}", way_out)
