/* The operations of the resident program, whose frames `farrier_device/boards` sends. */
#pragma once
#include "frames.h"

enum {
  HELLO = 'H',    /* → version (1), MOST_BODY (2), address and bytes of the free memory (4 each), JSON */
  WRITE = 'W',    /* address (4), bytes → */
  CLEAR = 'Z',    /* address, count (4 each) → */
  CHECK = 'S',    /* address, count → CRC-32 (4) */
  READ = 'R',     /* address, count → bytes */
  CALL = 'C',     /* address, milliseconds (4 each), repeats, arguments (2 each), addresses (4 each)
                     → how it ended (1), code or cause (4), ticks of each repeat, or an address */
  REFUSED = 'E',  /* → a sentence */
  DAMAGED_FRAME = 'N'
};
enum { VERSION = 1, RETURNED = 0, FAULTED = 1, HUNG = 2, MOST_ARGUMENTS = 128, MOST_REPEATS = 64 };

/* The memory that the operations may touch, and the description that HELLO answers with. */
uint8_t *memory_at(uint32_t address, uint32_t count); /* 0: not there */
extern const char description[];
extern const uint32_t free_address, free_bytes;

/* Answer one frame, or a damaged one. */
void serve_one(void);

/* Answer the call that is under way: it has taken a fault, or too long. */
void answer_call(uint8_t ending, uint32_t cause, uint32_t at);

/* Run an entry point. Returns its code. */
int32_t enter(uint32_t entry, const uint64_t *arguments);
