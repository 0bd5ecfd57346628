/* From reset to main: memory as C expects it, the units of floats and vectors on. */
#include "semihosting.h"

extern uint8_t data_from[], data_begin[], data_end[], bss_begin[], bss_end[], stack_top[];
int main(void);

static void fault(void) {
  semihost(SYS_WRITE0, "the processor took a fault\n");
  finish(2);
}

static __attribute__((used)) _Noreturn void begin(void) {
  for (uint32_t i = 0; i < (uint32_t)(data_end - data_begin); i++) data_begin[i] = data_from[i];
  for (volatile uint8_t *p = bss_begin; p < bss_end; p++) *p = 0;
  finish(main());
}

#if defined(__arm__)

#define CPACR (*(volatile uint32_t *)0xE000ED88u) /* Armv7-M Architecture Reference Manual, B3.2.20 */

void reset(void) {
  CPACR = 0xFu << 20; /* full access to coprocessors 10 and 11: floats, and MVE's vectors */
  __asm__ volatile("dsb\nisb");
  begin();
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    stack_top, reset, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, 0, 0, fault, fault};

#else

static __attribute__((used, aligned(4))) void trap(void) { fault(); }

__attribute__((naked, section(".vectors"), used)) void reset(void) {
  __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                   "la sp, stack_top\nla t0, %0\ncsrw mtvec, t0\n"
#if defined(__riscv_flen)
                   "li t0, 0x2000\ncsrs mstatus, t0\n" /* FS: the unit of floats is on */
#endif
                   "j %1" ::"i"(trap), "i"(begin));
}

#endif
