"""The measurement of the rates that this machine's GPU currently reaches: multiply-adds in
registers, and sequential reads from memory."""

from __future__ import annotations

from farrier.targets.scheduling import Peaks
from farrier_device.devices.cuda import CudaDevice
from farrier_device.measurement import Launch

_THREADS = 256
_SUMS = 8  # Independent sums of a thread: the latency of a multiply-add is about 4 cycles.
_STEPS, _STEPS_EMULATED = 512, 16
_BLOCKS = 8192  # Blocks of a launch, which fill the largest GPU several times.
_BLOCKS_EMULATED = 8
# The bytes read in a stream. They fit in the memory of any GPU, and exceed the caches of every GPU.
_STREAM_BYTES = 512 << 20
_STREAM_BYTES_EMULATED = 1 << 20
_VECTOR = 16  # The bytes of an access of a thread.
_TURNS = 5

_SUM_NAMES = [f"%s{number}" for number in range(_SUMS)]
_HEAD = ".version 6.5\n.target sm_75\n.address_size 64\n"
_REGISTERS = """
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b32 %s<16>;
  .reg .b64 %rd<8>;"""


def _multiply_adds(steps: int) -> str:
    return f"""{_HEAD}
.visible .entry multiply_adds(.param .u64 multiply_adds_y) .maxntid {_THREADS}
{{{_REGISTERS}
  ld.param.b64 %rd1, [multiply_adds_y];
  mov.u32 %r1, %tid.x;
  mov.u32 %r5, %ctaid.x;
  mad.lo.s32 %r6, %r5, {_THREADS}, %r1;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.b32 %r2, [%rd3];
  mov.b32 %r3, 0f3F000000;
  {" ".join(f"mov.b32 {name}, %r2;" for name in _SUM_NAMES)}
  mov.b32 %r4, 0;
$again:
  {" ".join(f"fma.rn.f32 {name}, {name}, %r2, %r3;" for name in _SUM_NAMES)}
  add.s32 %r4, %r4, 1;
  setp.lt.s32 %p1, %r4, {steps};
  @%p1 bra $again;
  {" ".join(f"add.rn.f32 %s0, %s0, {name};" for name in _SUM_NAMES[1:])}
  st.global.b32 [%rd3], %s0;
  ret;
}}
"""


_STREAM = f"""{_HEAD}
.visible .entry stream(.param .u64 stream_x, .param .u64 stream_y) .maxntid {_THREADS}
{{{_REGISTERS}
  ld.param.b64 %rd1, [stream_x];
  ld.param.b64 %rd2, [stream_y];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.s32 %r3, %r2, {_THREADS}, %r1;
  mul.wide.u32 %rd3, %r3, {_VECTOR};
  add.s64 %rd4, %rd1, %rd3;
  ld.global.v4.b32 {{%s0, %s1, %s2, %s3}}, [%rd4];
  {" ".join(f"xor.b32 %s0, %s0, %s{number};" for number in (1, 2, 3))}
  setp.eq.b32 %p1, %s0, 1;
  @!%p1 bra $end;
  st.global.b32 [%rd2], %s0;
$end:
  ret;
}}
"""


def measured(gpu: CudaDevice) -> Peaks:
    """Return the best rates of several runs. This replaces the modules loaded on the GPU; those of
    a model are loaded again when it is next opened."""
    steps = _STEPS_EMULATED if gpu.is_emulated else _STEPS
    gpu.load_modules({"multiply_adds": _multiply_adds(steps), "stream": _STREAM})
    blocks = _BLOCKS_EMULATED if gpu.is_emulated else _BLOCKS
    nbytes = _STREAM_BYTES_EMULATED if gpu.is_emulated else _STREAM_BYTES
    few, many = gpu.allocate(4 * _THREADS * blocks, 0), gpu.allocate(nbytes, 1)
    for memory in (few, many):
        gpu.clear(memory, memory.nbytes)
    shapes = ((blocks,), (_THREADS,)), ((nbytes // _VECTOR // _THREADS,), (_THREADS,))
    arithmetic = gpu.bind(Launch("multiply_adds", None, *shapes[0]), [(few, 0)])
    stream = gpu.bind(Launch("stream", None, *shapes[1]), [(many, 0), (few, 0)])
    each = gpu.time([arithmetic, stream], 1 + _TURNS, ())
    arithmetic_ns, stream_ns = (min(gpu.ns_of(samples[1:])) for samples in each)
    operations = 2 * _SUMS * steps * _THREADS * blocks
    return Peaks(1e9 * operations / arithmetic_ns, 1e9 * nbytes / stream_ns)
