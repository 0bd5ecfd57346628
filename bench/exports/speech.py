"""Export tiny speech models whose output lengths depend on predicted durations; for `bench.public`.

torch's newer exporter rejects data-dependent lengths, so the older one is used. Random noise in the
models has weight 0, so that the outputs of two engines can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from bench.exports.common import Wrapped, randomize

_VOCODER = {
    "upsample_initial_channel": 32,
    "upsample_rates": [4, 4],
    "upsample_kernel_sizes": [8, 8],
    "resblock_kernel_sizes": [3, 7],
    "resblock_dilation_sizes": [[1, 3], [1, 3]],
}
_OPSET = 17  # The newest opset that the older exporter supports completely.

# A module, its inputs by name, and the names of the open axes of each input.
Speech = tuple[nn.Module, dict[str, Any], dict[str, dict[int, str]]]


def vits() -> Speech:
    config = transformers.VitsConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, ffn_dim=64,
        flow_size=32, spectrogram_bins=33, noise_scale=0.0, noise_scale_duration=0.0,
        prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2, depth_separable_num_layers=2,
        duration_predictor_flow_bins=4, duration_predictor_num_flows=2,
        duration_predictor_filter_channels=32, **_VOCODER,
    )  # fmt: skip
    model = transformers.VitsModel(config)

    def call(model: Any, ids: Any, mask: Any) -> Any:
        return model(input_ids=ids, attention_mask=mask).waveform

    ids = torch.randint(0, 40, (1, 12))
    axes = {1: "tokens"}
    return (
        Wrapped(model, call),
        {"ids": ids, "mask": torch.ones_like(ids)},
        {"ids": axes, "mask": axes},
    )


def fastspeech2() -> Speech:
    config = transformers.FastSpeech2ConformerConfig(
        hidden_size=32, vocab_size=40, num_mel_bins=16, encoder_num_attention_heads=2,
        encoder_layers=1, encoder_linear_units=48, decoder_layers=1, decoder_num_attention_heads=2,
        decoder_linear_units=48, duration_predictor_channels=24, energy_predictor_channels=24,
        pitch_predictor_channels=24, speech_decoder_postnet_units=24,
        speech_decoder_postnet_layers=2, reduction_factor=1, encoder_kernel_size=7,
        decoder_kernel_size=15,
    )  # fmt: skip
    vocoder = transformers.FastSpeech2ConformerHifiGanConfig(model_in_dim=16, **_VOCODER)
    both = transformers.FastSpeech2ConformerWithHifiGanConfig(
        model_config=config.to_dict(), vocoder_config=vocoder.to_dict()
    )
    model = transformers.FastSpeech2ConformerWithHifiGan(both)

    def call(model: Any, ids: Any) -> Any:
        return model(input_ids=ids).waveform

    ids = torch.randint(1, 40, (1, 11))
    return Wrapped(model, call), {"ids": ids}, {"ids": {1: "tokens"}}


def hifigan() -> Speech:
    config = transformers.SpeechT5HifiGanConfig(model_in_dim=16, **_VOCODER)
    frames = torch.randn(2, 20, 16)
    return transformers.SpeechT5HifiGan(config), {"x": frames}, {"x": {0: "batch", 1: "frames"}}


CASES: dict[str, Callable[[], Speech]] = {
    "vits": vits,
    "fastspeech2": fastspeech2,
    "hifigan": hifigan,
}


def export(speech: Speech, path: Path) -> None:
    """Set random weights in a model and export it to a file. Raises the errors of torch's
    exporter."""
    module, inputs, axes = speech
    randomize(module)
    torch.onnx.export(
        module.eval(),
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        dynamic_axes=axes,
        opset_version=_OPSET,
        dynamo=False,
    )
