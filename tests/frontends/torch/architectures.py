"""Small modules of known architectures, exported with open dims: run where torch is.

`python -m tests.frontends.torch.architectures FOLDER` writes NAME.pt2 and NAME.npz for each: inputs
of three sizes, and the outputs of torch. `python -m tests.frontends.compared FOLDER` compiles
them where torch is not, and compares.
"""

import sys

import diffusers
import numpy as np
import torch
import transformers
from torch.export import Dim

BATCH, LENGTH = Dim("batch", min=1, max=16), Dim("length", min=2, max=30)
SIZES = ((2, 16), (1, 9), (3, 24))
TEXT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
WORDS = {**TEXT, "vocab_size": 120}
IMAGES = {**TEXT, "image_size": 64, "patch_size": 16}


class First(torch.nn.Module):
    """A module that returns the first output of another, with options."""

    def __init__(self, module, **options):
        super().__init__()
        self.module, self.options = module, options

    def forward(self, *arguments):
        return self.module(*arguments, **self.options)[0]


class Boxes(First):
    def forward(self, pixels):
        result = self.module(pixels)
        return result.logits, result.pred_boxes


class Translated(First):
    def forward(self, source, target):
        return self.module(source, decoder_input_ids=target, use_cache=False)[0]


class Decoded(First):
    def forward(self, latent):
        return self.module.decode(latent, return_dict=False)[0]


def _tokens(batch, length):
    return torch.randint(0, 100, (batch, length))


def _texts():
    return [(_tokens(*size),) for size in SIZES], ({0: BATCH, 1: LENGTH},)


def _pictures():
    return [(torch.randn(batch, 3, 64, 64),) for batch, _ in SIZES], ({0: BATCH},)


def _open_pictures():
    sizes = ((2, 64, 96), (1, 96, 64), (3, 128, 32))
    axes = {0: BATCH, 2: 32 * Dim("rows", min=1, max=8), 3: 32 * Dim("columns", min=1, max=8)}
    return [(torch.randn(batch, 3, height, width),) for batch, height, width in sizes], (axes,)


def _rows():
    return [(torch.randn(batch, 12),) for batch, _ in SIZES], ({0: BATCH},)


def _sentences():
    """Words of a fixed number: torch unrolls the steps of an LSTM."""
    return [(_tokens(batch, 12),) for batch, _ in SIZES], ({0: BATCH},)


def _pairs():
    cases = [(_tokens(*size), _tokens(size[0], 8)) for size in SIZES]
    return cases, ({0: BATCH, 1: LENGTH}, {0: BATCH})


def _sounds():
    cases = [(torch.randn(batch, 1000 + 40 * length),) for batch, length in SIZES]
    return cases, ({0: BATCH, 1: Dim("samples", min=400, max=4000)},)


def _latents():
    return [(torch.randn(batch, 4, 8, 8),) for batch, _ in SIZES], ({0: BATCH},)


def _diffusions():
    cases = [
        (torch.randn(batch, 4, 16, 16), torch.full((batch,), 7), torch.randn(batch, 6, 32))
        for batch, _ in SIZES
    ]
    return cases, ({0: BATCH},) * 3


def _unet():
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        norm_num_groups=4,
        attention_head_dim=8,
    )


def _vae():
    return diffusers.AutoencoderKL(
        block_out_channels=(16, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
    )


def _text(name, config=None, **options):
    model, configured = (
        getattr(transformers, name),
        getattr(transformers, config or name.replace("Model", "Config")),
    )
    return lambda: First(model(configured(**{**WORDS, **options}))), _texts


def _image(name, data=_pictures, **options):
    configured = getattr(transformers, name.replace("Model", "Config"))
    return lambda: First(getattr(transformers, name)(configured(**options))), data


class Table(torch.nn.Module):
    """Columns as tokens of a transformer, as FT-Transformer has them."""

    def __init__(self, columns=12, width=32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns, width) * 0.1)
        self.bias = torch.nn.Parameter(torch.zeros(columns, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 64, batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 3)

    def forward(self, x):
        return (self.head(self.encoder(x[..., None] * self.weight + self.bias).mean(1)),)


class Recurrent(torch.nn.Module):
    """A tagger of words by a bidirectional LSTM."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(100, 32)
        self.lstm = torch.nn.LSTM(32, 24, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(48, 7)

    def forward(self, words):
        return (self.head(self.lstm(self.words(words))[0]),)


_SEGFORMER = {"hidden_sizes": [16, 16, 32, 32], "depths": [1] * 4, "decoder_hidden_size": 32}
_T5 = {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2, "num_heads": 4, "vocab_size": 120}
_WAV = {"conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4}
CASES = {
    "bert": _text("BertModel"),
    "roberta": _text("RobertaModel"),
    "albert": _text("AlbertModel", embedding_size=32),
    "electra": _text("ElectraModel", embedding_size=32),
    "deberta": _text("DebertaV2Model"),
    "distilbert": _text("DistilBertModel", dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "gpt2": _text("GPT2Model", use_cache=False, **_GPT),
    "llama": _text("LlamaModel", num_key_value_heads=2, use_cache=False),
    "qwen2": _text("Qwen2Model", num_key_value_heads=2, use_cache=False),
    "gemma2": _text("Gemma2Model", num_key_value_heads=2, head_dim=16, use_cache=False),
    "t5": (lambda: Translated(transformers.T5ForConditionalGeneration(
        transformers.T5Config(**_T5))), _pairs),
    "vit": _image("ViTModel", **IMAGES),
    "deit": _image("DeiTModel", **IMAGES),
    "swin": _image(
        "SwinModel", image_size=64, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "convnext": _image("ConvNextModel", hidden_sizes=[16, 32], depths=[1, 1], num_stages=2),
    "segformer": _image("SegformerModel", num_attention_heads=[1, 2, 2, 4], **_SEGFORMER),
    "convnext open": _image(
        "ConvNextModel", _open_pictures, hidden_sizes=[16, 32], depths=[1, 1], num_stages=2
    ),
    "segformer open": _image(
        "SegformerModel", _open_pictures, num_attention_heads=[1, 2, 2, 4], **_SEGFORMER
    ),
    "resnet open": _image(
        "ResNetModel", _open_pictures, hidden_sizes=[16, 32], depths=[1, 1], embedding_size=16
    ),
    "resnet": _image("ResNetModel", hidden_sizes=[16, 32], depths=[1, 1], embedding_size=16),
    "mobilenetv2": _image("MobileNetV2Model", image_size=64),
    "yolos": (lambda: Boxes(transformers.YolosForObjectDetection(transformers.YolosConfig(
        **{**IMAGES, "image_size": [64, 64]}, num_detection_tokens=10))), _pictures),
    "wav2vec2": (lambda: First(transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(
        **WORDS, **_WAV, num_feat_extract_layers=2))), _sounds),
    "clip": _image("CLIPVisionModel", **IMAGES),
    "dpt": _image("Dinov2Model", **TEXT, image_size=64, patch_size=16),
    "table": (Table, _rows),
    "lstm": (Recurrent, _sentences),
    "unet": (lambda: First(_unet(), return_dict=False), _diffusions),
    "vae": (lambda: Decoded(_vae()), _latents),
}  # fmt: skip


def export(name, folder):
    """Write a module's program, and what torch computes."""
    make, data = CASES[name]
    module = make().eval().requires_grad_(False)
    cases, dims = data()
    shapes = (dims,) if isinstance(module, First) and type(module) is First else dims
    with torch.no_grad():
        program = torch.export.export(module, cases[0], dynamic_shapes=shapes)
        torch.export.save(program, f"{folder}/{name.replace(' ', '-')}.pt2")
        arrays = {}
        for number, case in enumerate(cases):
            results = module(*case)
            results = results if isinstance(results, tuple) else (results,)
            arrays.update({f"{number} in {n}": x.numpy() for n, x in enumerate(case)})
            arrays.update({f"{number} out {n}": x.numpy() for n, x in enumerate(results)})
    np.savez(f"{folder}/{name.replace(' ', '-')}.npz", **arrays)


if __name__ == "__main__":
    torch.manual_seed(0)
    for chosen in sys.argv[2:] or CASES:
        export(chosen, sys.argv[1])
