/* The functions that compiled code may call without naming them, for machines without a library:
   each in a section of its own, so that only those that are used are linked, and weak, so that a
   C library's take their place. */
#include <stddef.h>
#include <stdint.h>

#define SUPPORT __attribute__((weak, used))

SUPPORT void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  uint8_t *target = to;
  const uint8_t *source = from;
  for (size_t i = 0; i < count; i++) target[i] = source[i];
  return to;
}

SUPPORT void *memset(void *to, int value, size_t count) {
  uint8_t *target = to;
  for (size_t i = 0; i < count; i++) target[i] = (uint8_t)value;
  return to;
}

SUPPORT void *memmove(void *to, const void *from, size_t count) {
  uint8_t *target = to;
  const uint8_t *source = from;
  if (target < source)
    for (size_t i = 0; i < count; i++) target[i] = source[i];
  else
    for (size_t i = count; i-- > 0;) target[i] = source[i];
  return to;
}
