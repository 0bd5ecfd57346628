"""The templates of other packages, and the space that a kernel has with them."""

from __future__ import annotations

import dataclasses
import functools
import re

from farrier.errors import UsageError
from farrier.ir.tensor import TensorProgram
from farrier.plugins import TEMPLATES, Plugin, plugins
from farrier.records import RuleId
from farrier.space import JoinedSpace, Space
from farrier.targets import Target
from farrier.templates.errors import TemplateError
from farrier.templates.problem import Problem
from farrier.templates.space import TemplateSpace
from farrier.templates.template import Template, rule_of

_NAME = re.compile(r"[A-Za-z]\w*")


def beside(known: Space, program: TensorProgram, target: Target, threads: int) -> Space:
    """The space `known` of a kernel, joined with those of the installed templates that apply to it;
    `known` itself where none does. The default is the known one's, unless a template is preferred.
    Raises UsageError for a package, and TemplateError for a template, that is broken."""
    problem = Problem(program, target, threads)
    found = [_Found(plugin, problem) for plugin in installed()]
    asked = [one for one in found if one.applies]
    if not asked:
        return known
    before = [one.space for one in asked if one.plugin.made.preferred]
    after = [one.space for one in asked if not one.plugin.made.preferred]
    for space in (*before, *after):
        space.program, space.describe = known.program, lambda: known.about
    return JoinedSpace([*before, known, *after], known)


def rules() -> frozenset[RuleId]:
    """Those of every template."""
    return frozenset(rule_of(plugin.made) for plugin in installed())


@functools.cache
def installed() -> tuple[Plugin[Template], ...]:
    """Every template, by package and entry point. Raises UsageError for one that is broken."""
    found = plugins(TEMPLATES, "template", Template, "a subclass of Template")  # type: ignore[type-abstract]
    names: dict[str, Plugin[Template]] = {}
    for plugin in found:
        name, version = (getattr(plugin.made, field, None) for field in ("name", "version"))
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
    return found


@dataclasses.dataclass(frozen=True)
class _Found:
    """An installed template, and a kernel that it may apply to."""

    plugin: Plugin[Template]
    problem: Problem

    @property
    def _named(self) -> str:
        return f"{self.plugin}, called {self.plugin.made.name}"

    @property
    def applies(self) -> bool:
        try:
            return bool(self.plugin.made.applies(self.problem))
        except Exception as error:  # a stranger's code
            raise TemplateError(
                f"{self._named}, asked about {self.problem.program.name}, fails to say whether it "
                f"applies: {type(error).__name__}: {error}",
                hint=self.plugin.way_out,
            ) from error

    @property
    def space(self) -> Space:
        return TemplateSpace(self.plugin.made, self.problem, self._named, self.plugin.way_out)
