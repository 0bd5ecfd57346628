"""Templates: schedule spaces that other packages add for kernels of certain kinds."""

from farrier.schedule import Schedule
from farrier.space.space import Columns, Decisions, Estimate, Knob
from farrier.templates.errors import TemplateError
from farrier.templates.installed import beside
from farrier.templates.problem import Problem
from farrier.templates.template import Template, knob

__all__ = [
    "Columns",
    "Decisions",
    "Estimate",
    "Knob",
    "Problem",
    "Schedule",
    "Template",
    "TemplateError",
    "beside",
    "knob",
]
