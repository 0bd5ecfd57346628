/* A counter of 32 bits: an emulated machine's, where COUNTER is its address, or the core's cycles. */
#pragma once
#include <stdint.h>

#if defined(COUNTER)
static inline uint32_t ticks(void) { return *(volatile uint32_t *)COUNTER; }
#elif defined(NRF_TIMER)
/* A timer of an nRF51 with 32 bits, at 8 MHz: nRF51 Series Reference Manual, 18.2. */
static inline uint32_t ticks(void) {
  volatile uint32_t *const timer = (volatile uint32_t *)NRF_TIMER;
  if (timer[0x508 / 4] != 3) {
    timer[0x508 / 4] = 3; /* BITMODE: 32 bits */
    timer[0x510 / 4] = 1; /* PRESCALER: 16 MHz / 2 */
    timer[0x000 / 4] = 1; /* TASKS_START */
  }
  timer[0x040 / 4] = 1; /* TASKS_CAPTURE[0] */
  return timer[0x540 / 4];
}
#elif defined(__arm__) && __ARM_ARCH == 6
/* The core has no cycle counter but the system timer of 24 bits, which counts down: Armv6-M
   Architecture Reference Manual, B3.3. */
static inline uint32_t ticks(void) {
  *(volatile uint32_t *)0xE000E014u = 0xFFFFFF; /* SYST_RVR */
  *(volatile uint32_t *)0xE000E010u = 5;        /* SYST_CSR: the core's clock, no interrupt, on */
  return 0xFFFFFF - *(volatile uint32_t *)0xE000E018u;
}
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
