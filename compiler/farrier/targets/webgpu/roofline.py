"""The measurement of the rates that this machine's GPU currently reaches: multiply-adds in
registers, and sequential reads from memory."""

from __future__ import annotations

from farrier.targets.scheduling import Peaks
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.measurement import Launch

_THREADS = 64
_SUMS = 8  # Independent sums of a thread: the latency of a multiply-add is about 4 to 6 cycles.
_STEPS = 512
_BLOCKS = 8192  # Blocks of a launch, which fill the largest GPU several times.
_BLOCKS_EMULATED = 64
# The bytes read in a stream. They fit in the memory of any GPU, and exceed the caches of most GPUs.
_STREAM_BYTES = 64 << 20
_VECTORS = _STREAM_BYTES // 16
_TURNS = 5

_SUM_NAMES = [f"s{number}" for number in range(_SUMS)]
_MULTIPLY_ADDS = f"""
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size({_THREADS}) fn multiply_adds(
  @builtin(global_invocation_id) at: vec3<u32>
) {{
  let x = y[at.x % 64u];
  {" ".join(f"var {name} = x + {number}.0;" for number, name in enumerate(_SUM_NAMES))}
  for (var i = 0; i < {_STEPS}; i++) {{
    {" ".join(f"{name} = fma({name}, x, 0.5);" for name in _SUM_NAMES)}
  }}
  y[at.x % 64u] = {" + ".join(_SUM_NAMES)};
}}
"""
_STREAM = f"""
@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size({_THREADS}) fn stream(
  @builtin(global_invocation_id) at: vec3<u32>, @builtin(num_workgroups) blocks: vec3<u32>
) {{
  var sum = vec4<f32>(0.0);
  for (var i = at.x; i < {_VECTORS}u; i += blocks.x * {_THREADS}u) {{ sum += x[i]; }}
  y[at.x % 64u] = sum.x + sum.y + sum.z + sum.w;
}}
"""


def measured(gpu: WebGpuDevice) -> Peaks:
    """Return the best rates of several runs. This replaces the modules loaded on the GPU; those of
    a model are loaded again when it is next opened."""
    gpu.load_modules({"multiply_adds": _MULTIPLY_ADDS, "stream": _STREAM})
    blocks = _BLOCKS_EMULATED if gpu.is_emulated else _BLOCKS
    few = gpu.allocate(256, 0)
    arithmetic = gpu.bind(Launch("multiply_adds", None, (blocks,), (_THREADS,)), [(few, 0)])
    many = gpu.allocate(_STREAM_BYTES, 1)
    stream = gpu.bind(Launch("stream", None, (blocks,), (_THREADS,)), [(many, 0), (few, 0)])
    each = gpu.time([arithmetic, stream], 1 + _TURNS, ())
    arithmetic_ns, stream_ns = (min(gpu.ns_of(samples[1:])) for samples in each)
    operations = 2 * _SUMS * _STEPS * _THREADS * blocks
    return Peaks(1e9 * operations / arithmetic_ns, 1e9 * _STREAM_BYTES / stream_ns)
