"""Inputs with the structure of real ones, made here: pages of text, pictures, padded sentences.

For noise some models have outputs near 0 everywhere, and an error in shares of their range says
little: rapidocr_det finds no text in noise.
"""

from __future__ import annotations

import numpy as np

_TOKENS = 1000  # Any vocabulary is larger.
# Rows of five dots, the upper row first.
_GLYPHS = {
    "A": (0x0E, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11),
    "C": (0x0E, 0x11, 0x10, 0x10, 0x10, 0x11, 0x0E),
    "D": (0x1E, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1E),
    "E": (0x1F, 0x10, 0x10, 0x1E, 0x10, 0x10, 0x1F),
    "I": (0x0E, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0E),
    "L": (0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1F),
    "N": (0x11, 0x19, 0x15, 0x13, 0x11, 0x11, 0x11),
    "O": (0x0E, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0E),
    "R": (0x1E, 0x11, 0x11, 0x1E, 0x14, 0x12, 0x11),
    "S": (0x0F, 0x10, 0x10, 0x0E, 0x01, 0x01, 0x1E),
    "T": (0x1F, 0x04, 0x04, 0x04, 0x04, 0x04, 0x04),
    " ": (0, 0, 0, 0, 0, 0, 0),
}
_WORDS = "LATER ROADS INTO STONE ENTER A SILENT ISLAND AND COLD RAIN ENDS IT"


def realistic_inputs(specs, is_text):
    """Return an array for each input of a model: text or a picture for images, else tokens."""
    arrays = {}
    for spec in specs:
        if len(spec.shape) == 4:
            channels, height, width = spec.shape[1:]
            drawn = (
                np.broadcast_to(page_of_text(height, width), (channels, height, width))
                if is_text
                else picture(channels, height, width)
            )
            arrays[spec.name] = np.ascontiguousarray(drawn[None], spec.element.numpy)
        else:
            arrays[spec.name] = _tokens(spec.name, spec.shape).astype(spec.element.numpy)
    return arrays


def page_of_text(height, width):
    """Return dark words on light paper, from -1 to 1."""
    dots = min(height // 9, 5)  # The pixels of a dot of a glyph.
    page = np.full((height, width), 0.85)
    step = 6 * dots
    count = (width - 2 * dots) // step
    for line, top in enumerate(range(dots, height - 7 * dots + 1, 10 * dots)):
        words = (_WORDS[7 * line :] + " " + _WORDS)[:count]
        for at, letter in enumerate(words):
            glyph = np.array(_GLYPHS[letter])
            left = dots + at * step
            ink = np.kron(glyph[:, None] >> np.arange(5)[::-1] & 1, np.ones((dots, dots)))
            page[top : top + 7 * dots, left : left + 5 * dots] -= 1.6 * ink
    edged = np.pad(page, 1, mode="edge")  # The optics of a camera smooth edges.
    down = (edged[:-2] + 2 * edged[1:-1] + edged[2:]) / 4
    return (down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]) / 4


def picture(channels, height, width):
    """Return waves and two discs, each channel of mean 0 and deviation 1."""
    rng = np.random.default_rng(0)
    y, x = np.meshgrid(np.linspace(0, 1, height), np.linspace(0, 1, width), indexing="ij")
    image = np.zeros((channels, height, width))
    for channel in image:
        for frequency in (1, 2, 3, 5, 9):
            angle, phase = rng.uniform(0, 2 * np.pi, 2)
            along = np.cos(angle) * x + np.sin(angle) * y
            channel += np.cos(2 * np.pi * frequency * along + phase) / frequency
        for _ in range(2):
            down, right, radius = rng.uniform(0.1, 0.9, 3)
            channel += rng.normal() * (np.hypot(y - down, x - right) < radius / 3)
    image -= image.mean((1, 2), keepdims=True)
    return image / image.std((1, 2), keepdims=True)


def _tokens(name, shape):
    """Return the words of two sentences, a mask without padding at the end, or the sentences."""
    tokens = shape[-1]
    at = np.broadcast_to(np.arange(tokens), shape)
    if "mask" in name:
        return at < tokens - tokens // 8
    if "type" in name:
        return at >= tokens // 2
    return np.random.default_rng(0).integers(0, _TOKENS, shape)
