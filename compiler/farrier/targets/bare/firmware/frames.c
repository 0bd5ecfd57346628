#include "frames.h"

uint32_t crc32(const volatile uint8_t *from, uint32_t count) {
  static const uint32_t table[16] = {
      0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
      0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  uint32_t sum = 0xFFFFFFFFu;
  for (uint32_t i = 0; i < count; i++) {
    sum ^= from[i];
    sum = sum >> 4 ^ table[sum & 15];
    sum = sum >> 4 ^ table[sum & 15];
  }
  return ~sum;
}

enum { NOTHING = 0, DAMAGED = MOST_FRAME + 1 };

/* Decode the bytes up to the next zero, and return their count. */
static uint32_t decoded(uint8_t *into) {
  uint32_t count = 0, left = 0;
  uint8_t code = 0xFF, byte;
  int fits = 1;
  while ((byte = line_get()) != 0) {
    const int is_code = left == 0;
    if (is_code && code == 0xFF) { /* No zero stood before this group. */
      code = byte;
      left = byte - 1u;
      continue;
    }
    if (count == MOST_FRAME) fits = 0;
    if (fits) into[count++] = is_code ? 0 : byte;
    if (is_code) code = byte;
    left = is_code ? byte - 1u : left - 1;
  }
  return fits && left == 0 ? count : DAMAGED;
}

int receive_frame(frame *into) {
  uint32_t count;
  do count = decoded(into->bytes);
  while (count == NOTHING); /* A zero stands before each frame. */
  if (count == DAMAGED || count < HEAD + TAIL) return 0;
  into->length = count - HEAD - TAIL;
  return crc32(into->bytes, count - TAIL) == load4(into->bytes + count - TAIL);
}

void send_frame(frame *from) {
  const uint32_t count = HEAD + from->length + TAIL;
  const uint8_t *bytes = from->bytes;
  store4(from->bytes + count - TAIL, crc32(bytes, count - TAIL));
  line_put(0);
  for (uint32_t at = 0; at <= count;) {
    uint32_t run = 0;
    while (at + run < count && run < 254 && bytes[at + run]) run++;
    line_put((uint8_t)(run + 1));
    for (uint32_t i = 0; i < run; i++) line_put(bytes[at + i]);
    at += run + (run < 254); /* A run that ends before its 255th byte stands for a zero. */
    if (run == 254 && at == count) break;
  }
  line_put(0);
}
