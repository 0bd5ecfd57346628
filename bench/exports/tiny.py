"""Tiny configurations of known architectures, one function each; their dims are open within
ranges."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import nn
from torch.export import Dim

from bench.exports.common import Case, Wrapped, batch, named


def gpt2() -> Case:
    config = transformers.GPT2Config(
        vocab_size=1000, n_positions=256, n_embd=128, n_layer=3, n_head=4
    )
    model = transformers.GPT2LMHeadModel(config)
    past = tuple(torch.randn(2, 4, 7, 32) for _ in range(6))

    def call(model: Any, ids: Any, *past: Any) -> Any:
        cache = transformers.DynamicCache()
        for layer in range(3):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        kept = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *kept)

    rows, length = batch(), Dim("past", min=1, max=200)
    shapes = ({0: rows, 1: Dim("tokens", min=1, max=32)}, *({0: rows, 2: length},) * 6)
    return Wrapped(model, call), (torch.randint(0, 1000, (2, 5)), *past), {"arguments": shapes}


def t5() -> Case:
    config = transformers.T5Config(
        vocab_size=1000, d_model=96, d_kv=24, d_ff=192, num_layers=2, num_heads=4,
        attn_implementation="eager",
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config)

    def call(model: Any, ids: Any, decoder_ids: Any) -> Any:
        return model(input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False).logits

    rows = batch()
    shapes = ({0: rows, 1: Dim("source", max=128)}, {0: rows, 1: Dim("target", max=64)})
    ids = torch.randint(0, 1000, (2, 17))
    return Wrapped(model, call), (ids, ids[:, :9]), {"arguments": shapes}


def whisper() -> Case:
    config = transformers.WhisperConfig(
        vocab_size=1000, num_mel_bins=40, d_model=96, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=192,
        decoder_ffn_dim=192, max_source_positions=100, max_target_positions=64,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)

    def call(model: Any, features: Any, ids: Any) -> Any:
        return model(input_features=features, decoder_input_ids=ids, use_cache=False).logits

    rows = batch()
    shapes = ({0: rows}, {0: rows, 1: Dim("target", min=2, max=60)})
    return (
        Wrapped(model, call),
        (torch.randn(2, 40, 200), torch.randint(0, 1000, (2, 6))),
        {"arguments": shapes},
    )


def _image_model(model: nn.Module, side: int) -> Case:
    def call(model: Any, pixels: Any) -> Any:
        return model(pixel_values=pixels)[0]

    return Wrapped(model, call), (torch.randn(2, 3, side, side),), {"arguments": ({0: batch()},)}


def swin() -> Case:
    config = transformers.SwinConfig(
        image_size=64, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
        attn_implementation="eager",
    )  # fmt: skip
    return _image_model(transformers.SwinModel(config), 64)


def convnext() -> Case:
    config = transformers.ConvNextConfig(depths=[2, 2, 2, 2], hidden_sizes=[24, 48, 96, 192])
    return _image_model(transformers.ConvNextModel(config), 96)


def mobilevit() -> Case:
    config = transformers.MobileViTConfig(
        image_size=128, hidden_sizes=[48, 64, 80], neck_hidden_sizes=[16, 16, 24, 48, 64, 80, 96]
    )
    return _image_model(transformers.MobileViTModel(config), 128)


def detr() -> Case:
    backbone = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        out_features=["stage4"],
    )  # fmt: skip
    config = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_queries=20,
    )  # fmt: skip
    model = transformers.DetrForObjectDetection(config)

    def call(model: Any, pixels: Any) -> Any:
        out = model(pixel_values=pixels)
        return out.logits, out.pred_boxes

    return Wrapped(model, call), (torch.randn(2, 3, 96, 128),), {"arguments": ({0: batch()},)}


def clip() -> Case:
    config = transformers.CLIPConfig(
        text_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 32,
            "eos_token_id": 999,
        },
        vision_config={
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": 64, "patch_size": 16,
        },
        projection_dim=48,
    )  # fmt: skip
    model = transformers.CLIPModel(config)

    def call(model: Any, ids: Any, pixels: Any) -> Any:
        return model(input_ids=ids, pixel_values=pixels).logits_per_image

    shapes = ({0: Dim("texts", max=8), 1: Dim("tokens", min=2, max=32)}, {0: Dim("images", max=8)})
    arguments = (torch.randint(0, 999, (3, 11)), torch.randn(2, 3, 64, 64))
    return Wrapped(model, call), arguments, {"arguments": shapes}


def mamba() -> Case:
    config = transformers.MambaConfig(
        vocab_size=500, hidden_size=48, state_size=8, num_hidden_layers=2, use_cache=False
    )
    model = transformers.MambaForCausalLM(config)

    def call(model: Any, ids: Any) -> Any:
        return model(input_ids=ids, use_cache=False).logits

    ids = torch.randint(0, 500, (2, 12))
    return Wrapped(model, call), (ids,), {"arguments": ({0: batch()},)}


class _Experts(nn.Module):
    """A mixture-of-experts layer as in Mixtral: two of eight experts count for each token, but all
    are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(48, 8)
        self.up = nn.Parameter(torch.randn(8, 48, 96) * 0.1)
        self.down = nn.Parameter(torch.randn(8, 96, 48) * 0.1)

    def forward(self, x: Any) -> Any:
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2)
        hidden = torch.einsum("td,edh->teh", x, self.up)
        experts = torch.einsum("teh,ehd->ted", nn.functional.silu(hidden), self.down)
        picked = torch.gather(experts, 1, chosen[..., None].expand(-1, -1, 48))
        return (picked * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)


def mixture() -> Case:
    shapes = {"x": {0: Dim("tokens", max=64)}}
    return _Experts(), (torch.randn(10, 48),), shapes


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layers = kind(40, 64, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x)[0])


def lstm() -> Case:
    return _Recurrent(nn.LSTM), (torch.randn(2, 15, 40),), {"x": {0: batch()}}


def gru() -> Case:
    return _Recurrent(nn.GRU), (torch.randn(2, 15, 40),), {"x": {0: batch()}}


class _GraphConvolution(nn.Module):
    """A graph convolution of Kipf and Welling: the sum of neighbours' features, scaled by
    degrees."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, out)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros_like(x[:, 0]).scatter_add(0, target, ones) + 1
        scale = degree.rsqrt()
        h = self.linear(x) * scale[:, None]
        summed = torch.zeros_like(h).index_add(0, target, h[source])
        return (summed + h) * scale[:, None]


class _Gcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _GraphConvolution(32, 64), _GraphConvolution(64, 7)

    def forward(self, x: Any, edges: Any) -> Any:
        return self.second(self.first(x, edges).relu(), edges)


class _Gat(nn.Module):
    """A graph attention layer of Velickovic et al. with four heads: attention over the edges that
    end at each node."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 64)
        self.left = nn.Parameter(torch.randn(4, 16) * 0.3)
        self.right = nn.Parameter(torch.randn(4, 16) * 0.3)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges[0], edges[1]
        h = self.linear(x).view(-1, 4, 16)
        score = (h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target]
        score = nn.functional.leaky_relu(score, 0.2)
        index = target[:, None].expand(-1, 4)
        most = torch.full_like(h[:, :, 0], -1e9).scatter_reduce(0, index, score, "amax")
        weight = (score - most[target]).exp()
        total = torch.zeros_like(most).scatter_add(0, index, weight)
        weight = weight / total[target]
        out = torch.zeros_like(h).index_add(0, target, h[source] * weight[..., None])
        return out.flatten(1)


def _graph(model: nn.Module) -> Case:
    edges = torch.randint(0, 50, (2, 200))
    shapes = {"x": {0: Dim("nodes", min=2, max=1000)}, "edges": {1: Dim("edges", min=2, max=5000)}}
    return model, (torch.randn(50, 32), edges), shapes


def gcn() -> Case:
    return _graph(_Gcn())


def gat() -> Case:
    return _graph(_Gat())


CASES = named(
    gpt2, t5, whisper, swin, convnext, mobilevit, detr, clip, mamba, mixture, lstm, gru, gcn, gat
)
