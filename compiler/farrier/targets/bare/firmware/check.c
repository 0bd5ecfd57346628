/* Run a model once under an emulator: read the file "inputs", write the file "outputs", which
   begins with the model's code, the counter's ticks of the run, and the bytes of stack it took. */
#include "model.h"
#include "semihosting.h"
#include "start.h"
#include "ticks.h"

static uint8_t arena[MODEL_ARENA_BYTES] __attribute__((aligned(64)));

static intptr_t open_file(const char *name, intptr_t length, intptr_t mode) {
  const intptr_t block[3] = {(intptr_t)name, mode, length};
  const intptr_t handle = semihost(SYS_OPEN, block);
  if (handle < 0) finish(3);
  return handle;
}

static void transfer(intptr_t operation, intptr_t handle, const void *bytes, intptr_t length) {
  const intptr_t block[3] = {handle, (intptr_t)bytes, length};
  if (length && semihost(operation, block)) finish(4);
}

/* The stack below the caller's frame is painted; what the model overwrites, it has used. */
enum { PAINT = 0xA5 };

static uint8_t *frame(void) { return __builtin_frame_address(0); }

static __attribute__((noinline)) void paint(void) {
  for (volatile uint8_t *p = bss_end; p < frame() - 64; p++) *p = PAINT;
}

static uint32_t untouched(void) {
  uint32_t count = 0;
  for (const volatile uint8_t *p = bss_end; p < frame() && *p == PAINT; p++) count++;
  return count;
}

_Noreturn void recover(uint32_t cause, uint32_t at) {
  (void)cause, (void)at;
  semihost(SYS_WRITE0, "the processor took a fault\n");
  finish(2);
}

_Noreturn void run(void) {
  const intptr_t in = open_file("inputs", 6, 1 /* rb */);
#define READ(offset, nbytes) transfer(SYS_READ, in, arena + (offset), (nbytes));
  MODEL_INPUTS(READ)
  paint();
  const uint32_t before = ticks();
  const int32_t code = MODEL_RUN(arena);
  const uint32_t after = ticks();
  const uint32_t result[3] = {(uint32_t)code, after - before, (uint32_t)(frame() - bss_end) - untouched()};
  const intptr_t out = open_file("outputs", 7, 5 /* wb */);
  transfer(SYS_WRITE, out, result, sizeof result);
#define WRITE(offset, nbytes) transfer(SYS_WRITE, out, arena + (offset), (nbytes));
  MODEL_OUTPUTS(WRITE)
  semihost(SYS_CLOSE, &out);
  finish(0);
}
