/* A counter of 32 bits: an emulated machine's, where COUNTER is its address, or the core's cycles. */
#pragma once
#include <stdint.h>

#if defined(COUNTER)
static inline uint32_t ticks(void) { return *(volatile uint32_t *)COUNTER; }
#elif defined(__arm__)
/* The cycle counter of the unit for watchpoints: Armv7-M Architecture Reference Manual, C1.8. */
static inline uint32_t ticks(void) {
  *(volatile uint32_t *)0xE000EDFCu |= 1u << 24; /* DEMCR.TRCENA */
  *(volatile uint32_t *)0xE0001000u |= 1u;       /* DWT_CTRL.CYCCNTENA */
  return *(volatile uint32_t *)0xE0001004u;
}
#else
static inline uint32_t ticks(void) {
  uintptr_t count;
  __asm__ volatile("csrr %0, mcycle" : "=r"(count));
  return (uint32_t)count;
}
#endif
