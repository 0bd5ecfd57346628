/* The resident program on a board: its line, its memory, and how it runs code. */
#include "board.h"
#include "line.h"
#include "resident.h"
#include "start.h"

const char description[] = DESCRIPTION;
const uint32_t free_address = FREE_ADDRESS, free_bytes = FREE_BYTES;

uint8_t *memory_at(uint32_t address, uint32_t count) {
  const uint32_t offset = address - FREE_ADDRESS;
  return offset <= FREE_BYTES && count <= FREE_BYTES - offset ? (uint8_t *)address : 0;
}

typedef void body(void *context, int64_t begin, int64_t end, int64_t worker);
typedef int32_t entry_point(const uint64_t *arguments, const void *pool);

static void run_all(const void *pool, body *part, void *context, int64_t extent) {
  (void)pool;
  part(context, 0, extent, 0);
}

/* A pool of one thread, which runs parallel loops. */
static const struct {
  void *parallel_for;
  uint64_t threads;
} pool __attribute__((aligned(8))) = {(void *)run_all, 1};

int32_t enter(uint32_t entry, const uint64_t *arguments) {
#if defined(__arm__)
  entry |= 1; /* Thumb */
  __asm__ volatile("dsb\nisb" ::: "memory");
#elif defined(__riscv_zifencei)
  __asm__ volatile("fence.i" ::: "memory");
#endif
  return ((entry_point *)entry)(arguments, &pool);
}

_Noreturn void run(void) {
  line_begin();
  for (;;) serve_one();
}

_Noreturn void recover(uint32_t cause, uint32_t at) {
  stop_watch();
  answer_call(cause == OUT_OF_TIME ? HUNG : FAULTED, cause, at);
  for (;;) serve_one();
}
