/* The resident program as a process of this machine: its line is standard input and output, its
   memory an array, and its calls are these functions. */
#include <stdlib.h>
#include <setjmp.h>
#include <string.h>
#include <unistd.h>

#include "resident.h"
#include "start.h"

enum { BASE = 0x20000000, BYTES = 1 << 16 };
static uint8_t memory[BYTES];
static jmp_buf served;

const char description[] = DESCRIPTION;
const uint32_t free_address = BASE, free_bytes = BYTES;

uint8_t *memory_at(uint32_t address, uint32_t count) {
  const uint32_t offset = address - BASE;
  return offset <= BYTES && count <= BYTES - offset ? memory + offset : 0;
}

uint8_t line_get(void) {
  static uint8_t bytes[4096];
  static ssize_t at, count;
  if (at == count) {
    at = 0;
    if ((count = read(0, bytes, sizeof bytes)) <= 0) exit(0);
  }
  return bytes[at++];
}

static uint8_t out[1 << 14];
static size_t waiting;

void line_put(uint8_t byte) {
  out[waiting++] = byte;
  if (byte && waiting < sizeof out) return;
  if (write(1, out, waiting) < 0) exit(0);
  waiting = 0;
}

void start_watch(uint32_t milliseconds) { (void)milliseconds; }
void stop_watch(void) {}

int32_t enter(uint32_t entry, const uint64_t *arguments) {
  switch (entry - BASE) {
    case 0: memory_at((uint32_t)arguments[0], 1)[0]++; return 0; /* It counts its calls. */
    case 2: answer_call(FAULTED, 3, 0x1234); longjmp(served, 1);
    case 4: answer_call(HUNG, OUT_OF_TIME, 0); longjmp(served, 1);
    default: return -7;
  }
}

int main(void) {
  setjmp(served);
  for (;;) serve_one();
}
