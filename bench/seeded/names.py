"""Names of seeded models, kernels and users: ordinary ones, and ones with markup, which pages must
show as text."""

from __future__ import annotations

MODELS = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "yolov8n",
    "bert-base-uncased",
    "whisper-tiny-encoder",
    "rapidocr_det",
    "efficientnet_b0",
    "distilgpt2",
    "squeezenet1.1",
)
OWNERS = ("default", "ann", "boris", "ci")
KERNELS = (
    "conv2d 3x3 64→64",
    "conv2d 1x1 128→256 + relu",
    "depthwise 3x3 + clip",
    "matmul 768x3072",
    "matmul 3072x768 + gelu",
    "softmax over 512",
    "layer norm",
    "global average pool",
    "resize + add",
    "transpose",
)
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "\u202egnp.xnno\u202c and \u2066isolates\u2069",
    "line one\nline two\ttab \x00 nul \x1b[31mred\x1b[0m \x7f",
    "'; DROP TABLE jobs; --&amp;&lt;b&gt;${7*7}{{7*7}}",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘ 模型 نموذج",
    "long " * 2000,
)
"""Those of models: the API takes none with control characters, or of more than 200 characters, for
jobs; those of kernels may be anything, and other versions may have stored whatever they took."""
