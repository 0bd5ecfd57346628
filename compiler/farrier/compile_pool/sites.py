"""Choose the site of each kernel of a model: the device of the target, or the host.

A kernel runs on the device if it can. The exception is an *island*, device kernels between kernels
of the host: it runs on the host if copying its inputs and outputs would take longer than that:

    host a(x) -> h                            host a(x) -> h
    copy h, gpu b(h) -> y, wait, copy y   →   host b(h) -> y
    host c(y) -> z                            host c(y) -> z

Where the peak rates of both are published, and the host is not slower by them, the host runs the
whole model: a small GPU has no advantage over the processor next to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from farrier.ir.dim import typical
from farrier.ir.graph import Value
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.work import arithmetic
from farrier.partition import Call
from farrier.targets import Target
from farrier.targets.scheduling import Peaks
from farrier.targets.siting import Site, site_of
from farrier_device.program import HOST

# Figures that only compare: a call, an operation and a byte on one core; a launch; a copy to a
# device, and one from it, which is waited for (0.1 to 0.8 ms by Vulkan); a byte of either.
_CALL_S, _OPERATION_S, _BYTE_S = 1e-6, 1e-9, 2e-10
_LAUNCH_S, _SEND_S, _RECEIVE_S, _COPIED_BYTE_S = 5e-6, 1e-5, 1e-4, 2e-10
_REASON = "it lies between kernels of the host, and copies would take longer than it does there"


def choose_sites(
    programs: Mapping[str, TensorProgram | Function],
    target: Target,
    calls: Collection[Call] = (),
    constants: Collection[str] = (),
) -> dict[str, Site]:
    """Return the site of each kernel, by the key of its task. `constants` are the names of
    constants, which need no copies."""
    sites = {key: site_of(program, target) for key, program in programs.items()}
    others = {site.space for site in sites.values()} - {HOST}
    if not others or HOST not in target.backend.parts(target):
        return sites
    if slow := _why_slow(programs, sites, target, calls):
        return {key: site if site.space == HOST else slow for key, site in sites.items()}
    for island in _islands(sites, calls, constants):
        if island.is_cheaper_on_host(programs):
            sites |= dict.fromkeys(island.keys, Site(HOST, _REASON))
    return sites


def _why_slow(
    programs: Mapping[str, TensorProgram | Function],
    sites: Mapping[str, Site],
    target: Target,
    calls: Collection[Call],
) -> Site | None:
    """Return the host as the site of all kernels if, at the peak rates of both machines, the host
    is at least as fast as the device. Return None if it is not, or if the rates are unknown."""
    own = [call for call in calls if sites[call.task].space != HOST]
    rates = target.backend.rates(target)
    if not own or not rates:
        return None
    spaces = HOST, next(sites[call.task].space for call in own)
    host_s, device_s = (
        sum(call.runs * _least_s(call, programs[call.task], rates[space]) for call in own)
        for space in spaces
    )
    if host_s > device_s:
        return None
    return Site(
        HOST,
        f"{target.cpu} is no faster than its host: by peak rates the model takes "
        f"{device_s * 1e3:.3g} ms there, and {host_s * 1e3:.3g} ms on the host",
    )


def _least_s(call: Call, program: TensorProgram | Function, peaks: Peaks) -> float:
    """Return a lower bound of the seconds of a call: the time that the machine takes at its peak
    rates."""
    operations_s = arithmetic(program) / peaks.operations
    return max(operations_s, _bytes((*call.inputs, *call.outputs)) / peaks.bandwidth)


class _Island:
    """Device kernels that are connected by values, and the calls of these kernels."""

    def __init__(
        self, keys: set[str], calls: Collection[Call], on_host: set[str], constants: Collection[str]
    ) -> None:
        self.keys = keys
        self._calls = [call for call in calls if call.task in keys]
        own = {value.name for call in self._calls for value in call.outputs}
        inputs = {value.name: value for call in self._calls for value in call.inputs}
        self._inputs = [
            value for name, value in inputs.items() if name not in own and name not in constants
        ]
        others = [call for call in calls if call.task in on_host]
        read = {value.name for call in others for value in call.inputs}
        written = {value.name for call in others for value in call.outputs}
        outputs = [value for call in self._calls for value in call.outputs]
        self._outputs = [value for value in outputs if value.name in read]
        between = {value.name for call in self._calls for value in call.inputs} | read
        # An island that takes part in what the model reads or returns is the work of the device.
        self._lies_between = all(value.name in written for value in self._inputs) and all(
            value.name in between for value in outputs
        )

    def is_cheaper_on_host(self, programs: Mapping[str, TensorProgram | Function]) -> bool:
        if not self._lies_between:
            return False
        host_s = sum(call.runs * _host_s(call, programs[call.task]) for call in self._calls)
        runs = max(call.runs for call in self._calls)
        copies_s = len(self._inputs) * _SEND_S + len(self._outputs) * _RECEIVE_S
        copies_s += _COPIED_BYTE_S * _bytes((*self._inputs, *self._outputs))
        launches_s = sum(call.runs * _LAUNCH_S for call in self._calls)
        return host_s < launches_s + runs * copies_s


def _islands(
    sites: Mapping[str, Site], calls: Collection[Call], constants: Collection[str]
) -> Iterator[_Island]:
    """Yield the islands: the largest groups of kernels on the device that are connected by values
    which one of them computes and another reads."""
    on_device = {key for key, site in sites.items() if site.space != HOST}
    on_host = {key for key, site in sites.items() if site.space == HOST}
    group = {key: {key} for key in on_device}
    own = [call for call in calls if call.task in on_device]
    writers = {value.name: call.task for call in own for value in call.outputs}
    for call in own:
        for value in call.inputs:
            other = writers.get(value.name, call.task)
            if group[other] is not group[call.task]:
                joined = group[other] | group[call.task]
                group |= dict.fromkeys(joined, joined)
    for keys in {id(keys): keys for keys in group.values()}.values():
        yield _Island(keys, calls, on_host, constants)


def _host_s(call: Call, program: TensorProgram | Function) -> float:
    values = (*call.inputs, *call.outputs)
    return _CALL_S + arithmetic(program) * _OPERATION_S + _bytes(values) * _BYTE_S


def _bytes(values: Collection[Value]) -> int:
    return sum(typical(value.type.nbytes) for value in values)
