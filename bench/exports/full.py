"""Known architectures in their published sizes, with random weights, exported with torch's default
options.

Their dims are open by name, without ranges, and the weights are in a second file, as torch's
exporter does by default. `llama_wide` has 2.7 GB of weights.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn

from bench.exports.common import Case, Wrapped, named

_BATCH = {0: "batch"}
_TOKENS = {0: "batch", 1: "tokens"}
_IMAGE = {0: "batch", 2: "height", 3: "width"}


def _pixels(model: nn.Module, opened: dict[int, str], side: int = 224) -> Case:
    """Return the export of an image model, reduced to its first output. `opened` are the names of
    the image's open axes."""

    def call(model: Any, pixels: Any) -> Any:
        return model(pixel_values=pixels)[0]

    pixels = torch.randn(2, 3, side, side)
    return Wrapped(model, call, "pixel_values"), (pixels,), {"arguments": (opened,)}


def _ids(model: nn.Module, vocabulary: int, **options: Any) -> Case:
    """Return the export of a language model, reduced to its first output."""

    def call(model: Any, ids: Any) -> Any:
        return model(input_ids=ids, **options)[0]

    ids = torch.randint(0, vocabulary, (2, 16))
    return Wrapped(model, call, "input_ids"), (ids,), {"arguments": (_TOKENS,)}


def resnet18() -> Case:
    config = transformers.ResNetConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", num_labels=1000
    )
    return _pixels(transformers.ResNetForImageClassification(config), _IMAGE)


def mobilenet_v2() -> Case:
    config = transformers.MobileNetV2Config(tf_padding=False, num_labels=1001)
    return _pixels(transformers.MobileNetV2ForImageClassification(config), _IMAGE)


def convnext_tiny() -> Case:
    config = transformers.ConvNextConfig(num_labels=1000)
    return _pixels(transformers.ConvNextForImageClassification(config), _IMAGE)


def vit_b16() -> Case:
    config = transformers.ViTConfig(num_labels=1000)
    return _pixels(transformers.ViTForImageClassification(config), _BATCH)


def segformer_b0() -> Case:
    """Return a model of semantic segmentation."""
    model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig())
    return _pixels(model, _IMAGE, 512)


def yolos_tiny() -> Case:
    """Return a detector: boxes and classes by a transformer of image patches."""
    config = transformers.YolosConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768,
        image_size=[224, 320], num_detection_tokens=100, use_mid_position_embeddings=False,
        num_labels=91,
    )  # fmt: skip
    model = transformers.YolosForObjectDetection(config)

    def call(model: Any, pixels: Any) -> Any:
        out = model(pixel_values=pixels)
        return out.logits, out.pred_boxes

    pixels = torch.randn(2, 3, 224, 320)
    return Wrapped(model, call, "pixel_values"), (pixels,), {"arguments": (_BATCH,)}


def bert_base() -> Case:
    model = transformers.BertModel(transformers.BertConfig())

    def call(model: Any, ids: Any, mask: Any) -> Any:
        out = model(input_ids=ids, attention_mask=mask)
        return out.last_hidden_state, out.pooler_output

    ids = torch.randint(0, 30522, (2, 16))
    arguments = (ids, torch.ones_like(ids))
    wrapped = Wrapped(model, call, "input_ids", "attention_mask")
    return wrapped, arguments, {"arguments": (_TOKENS, _TOKENS)}


def gpt2() -> Case:
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return _ids(model, 50257, use_cache=False)


def t5_small() -> Case:
    config = transformers.T5Config(attn_implementation="eager")
    model = transformers.T5ForConditionalGeneration(config)

    def call(model: Any, ids: Any, decoder_ids: Any) -> Any:
        return model(input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False).logits

    ids = torch.randint(0, 32000, (2, 24))
    shapes = ({0: "batch", 1: "source"}, {0: "batch", 1: "target"})
    wrapped = Wrapped(model, call, "input_ids", "decoder_input_ids")
    return wrapped, (ids, ids[:, :9]), {"arguments": shapes}


def whisper_tiny() -> Case:
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
            decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
        )
    )  # fmt: skip

    def call(model: Any, features: Any, ids: Any) -> Any:
        return model(input_features=features, decoder_input_ids=ids, use_cache=False).logits

    arguments = (torch.randn(2, 80, 3000), torch.randint(0, 50000, (2, 6)))
    wrapped = Wrapped(model, call, "input_features", "decoder_input_ids")
    return wrapped, arguments, {"arguments": (_BATCH, {0: "batch", 1: "target"})}


def _llama(width: int, layers: int, inner: int, heads: int, shared: int) -> Case:
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=width, num_hidden_layers=layers, intermediate_size=inner,
        num_attention_heads=heads, num_key_value_heads=shared,
    )  # fmt: skip
    return _ids(transformers.LlamaForCausalLM(config), 32000, use_cache=False)


def llama_small() -> Case:
    """Return a llama of 0.16 billion weights, including grouped queries."""
    return _llama(768, 12, 2048, 12, 4)


def llama_wide() -> Case:
    """Return two layers of a llama of 7 billion weights, with its embeddings: 2.7 GB."""
    return _llama(4096, 2, 11008, 32, 32)


CASES = named(
    resnet18, mobilenet_v2, convnext_tiny, vit_b16, segformer_b0, yolos_tiny, bert_base, gpt2,
    t5_small, whisper_tiny, llama_small, llama_wide,
)  # fmt: skip
