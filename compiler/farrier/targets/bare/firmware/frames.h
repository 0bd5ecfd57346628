/* Frames over a line that may lose or change bytes.

   A frame is a number (4 bytes), an operation (1), a body, and a CRC-32 of all that (4), each number
   little endian; COBS (Cheshire and Baker, 1999) takes its zeros out, and a zero stands before and
   after it. So a reader that has lost its place has it again at the next zero. */
#pragma once
#include <stdint.h>

enum { HEAD = 5, TAIL = 4, MOST_BODY = 1032 };
#define MOST_FRAME (HEAD + MOST_BODY + TAIL)
#define NO_NUMBER 0xFFFFFFFFu /* of a frame that answers none */

typedef struct {
  uint32_t length; /* of the body */
  uint8_t bytes[MOST_FRAME];
} frame;

static inline uint32_t load4(const uint8_t *from) {
  return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline void store4(uint8_t *to, uint32_t value) {
  for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

/* The CRC-32 of IEEE 802.3, four bits at a time. */
uint32_t crc32(const volatile uint8_t *from, uint32_t count);

/* Wait for the next frame. Returns 0 for one that is damaged. */
int receive_frame(frame *into);

/* Send a frame with its number, operation and body, whose CRC-32 is computed here. */
void send_frame(frame *from);

/* The line, by the board's UART. */
uint8_t line_get(void);
void line_put(uint8_t byte);
