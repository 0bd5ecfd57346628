"""Run a model with inputs and outputs that stay on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from farrier.errors import UsageError
from farrier.runtime.device_array import DeviceArray, is_on_device, taken
from farrier.runtime.loaded_model import LoadedModel
from farrier_device.devices.device import AnyDevice
from farrier_device.interpreted import InterpretedEntry


def entry_of(loaded: LoadedModel) -> tuple[InterpretedEntry, AnyDevice]:
    """Return the program of a model, and the device that the program drives. Raises UsageError if
    the model runs on the CPU."""
    code = loaded.code
    device = code.resident if isinstance(code, InterpretedEntry) else None
    if not isinstance(code, InterpretedEntry) or device is None:
        raise UsageError(
            f"{loaded.manifest.name} runs on the processor, and has no memory of a device",
            hint="compile it with --target cuda:… or webgpu, or use session.run",
        )
    return code, device


def run(loaded: LoadedModel, inputs: Mapping[str, Any]) -> dict[str, DeviceArray]:
    """Run a model on inputs that may be device arrays, and return its outputs by name as device
    arrays (`Session.run_on_device`)."""
    entry, device = entry_of(loaded)
    if loaded.manifest.counted or loaded.manifest.capacities or loaded.manifest.state:
        raise UsageError(
            f"{loaded.manifest.name} has states, or outputs whose sizes the data decides",
            hint="session.run returns them in the memory of the host",
        )
    there = {name: taken(name, x, device) for name, x in inputs.items() if is_on_device(x)}
    by_host = {
        spec.name
        for number, spec in enumerate(loaded.manifest.inputs)
        if f"input{number}" in entry.read_by_host
    }
    # Arrays that nothing reads stand for the others, where shapes and dtypes are checked.
    shown = {
        name: x.numpy() if name in by_host else np.empty(x.shape, x.dtype)
        for name, x in there.items()
    }
    slots, out_slots, _arrays = loaded.place({**inputs, **shown})
    attached = {
        f"input{number}": there[slot.name]
        for number, slot in enumerate(slots)
        if slot.name in there and slot.name not in by_host
    }
    results = {
        f"output{number}": DeviceArray.empty(device, slot.shape, slot.dtype)
        for number, slot in enumerate(out_slots)
    }
    attached |= {name: x for name, x in results.items() if name not in entry.read_by_host}
    places = {name: (x.memory, x.offset) for name, x in attached.items()}
    with entry.attached(places):
        loaded.call()
    for number, slot in enumerate(out_slots):
        if (name := f"output{number}") not in attached:
            results[name] = DeviceArray.of(device, slot.array)
    return {slot.name: x for slot, x in zip(out_slots, results.values(), strict=True)}
