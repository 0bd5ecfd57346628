"""This machine, as a farm's jobs and devices name it."""

from __future__ import annotations

from farrier.targets import to_text
from farrier_device.describe import describe
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget

TARGET = to_text(describe())
CLASS = DeviceClass.of(describe())
HERE = MeasurementTarget(CLASS.id)
