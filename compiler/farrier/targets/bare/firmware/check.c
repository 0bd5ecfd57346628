/* Run a model once under an emulator: read the file "inputs", write the file "outputs", which
   begins with the model's code, the counter's ticks of the run, and the bytes of stack it took. */
#include "model.h"
#include "semihosting.h"

static uint8_t arena[MODEL_ARENA_BYTES] __attribute__((aligned(64)));

#if defined(COUNTER)
static uint32_t ticks(void) { return *(volatile uint32_t *)COUNTER; }
#elif defined(__arm__)
/* The cycle counter of the unit for watchpoints: Armv7-M Architecture Reference Manual, C1.8. */
static uint32_t ticks(void) {
  *(volatile uint32_t *)0xE000EDFCu |= 1u << 24; /* DEMCR.TRCENA */
  *(volatile uint32_t *)0xE0001000u |= 1u;       /* DWT_CTRL.CYCCNTENA */
  return *(volatile uint32_t *)0xE0001004u;
}
#else
static uint32_t ticks(void) {
  uintptr_t count;
  __asm__ volatile("csrr %0, mcycle" : "=r"(count));
  return (uint32_t)count;
}
#endif

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
extern uint8_t bss_end[];

static uint8_t *frame(void) { return __builtin_frame_address(0); }

static __attribute__((noinline)) void paint(void) {
  for (volatile uint8_t *p = bss_end; p < frame() - 64; p++) *p = PAINT;
}

static uint32_t untouched(void) {
  uint32_t count = 0;
  for (const volatile uint8_t *p = bss_end; p < frame() && *p == PAINT; p++) count++;
  return count;
}

int main(void) {
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
  return 0;
}
