"""Find the templates of installed packages, and extend the space of a kernel by theirs."""

from __future__ import annotations

import functools
import re

from farrier.errors import UsageError
from farrier.plugins import TEMPLATES, Plugin, plugins
from farrier.records import RuleId
from farrier.space import JoinedSpace, Space
from farrier.templates.asked import Asked
from farrier.templates.problem import Problem
from farrier.templates.space import TemplateSpace
from farrier.templates.template import Template, rule_of

_NAME = re.compile(r"[A-Za-z]\w*")


def beside(builtin: Space, problem: Problem) -> Space:
    """Return the space of a kernel for a search: the space `builtin`, joined with the spaces of all
    installed templates that apply to the kernel. Return `builtin` itself if no template applies.

    The default schedule is that of `builtin`, unless a template is preferred. Raises UsageError for
    a broken package, and TemplateError for a broken template.
    """
    applying = [plugin for plugin in installed() if _applies(plugin, problem)]
    if not applying:
        return builtin
    before = [_space(plugin, problem) for plugin in applying if plugin.loaded.preferred]
    after = [_space(plugin, problem) for plugin in applying if not plugin.loaded.preferred]
    for space in (*before, *after):
        space.program, space.describe = builtin.program, lambda: builtin.about
    own = builtin.spaces if isinstance(builtin, JoinedSpace) else (builtin,)
    return JoinedSpace([*before, *own, *after], own[0])


def rules() -> frozenset[RuleId]:
    """Return the rules of all installed templates."""
    return frozenset(rule_of(plugin.loaded) for plugin in installed())


@functools.cache
def installed() -> tuple[Plugin[Template], ...]:
    """Return every installed template with its package and entry point. Raises UsageError for a
    broken package."""
    templates = plugins(TEMPLATES, "template", Template, "a subclass of Template")  # type: ignore[type-abstract]
    names: dict[str, Plugin[Template]] = {}
    for plugin in templates:
        name, version = (getattr(plugin.loaded, field, None) for field in ("name", "version"))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"{plugin} has the name {name!r}: letters, digits and _ make one",
                hint=plugin.way_out,
            )
        if type(version) is not int:
            raise UsageError(f"{plugin} has the version {version!r}", hint=plugin.way_out)
        if name in names:
            raise UsageError(f"{plugin} is called {name}, as is {names[name]}", hint=plugin.way_out)
        names[name] = plugin
    return templates


def _applies(plugin: Plugin[Template], problem: Problem) -> bool:
    asked = Asked(_named(plugin), problem.program.name, plugin.way_out)
    return asked.answer("whether it applies", lambda: bool(plugin.loaded.applies(problem)))


def _space(plugin: Plugin[Template], problem: Problem) -> Space:
    return TemplateSpace(plugin.loaded, problem, _named(plugin), plugin.way_out)


def _named(plugin: Plugin[Template]) -> str:
    return f"{plugin}, called {plugin.loaded.name}"
