/* Calls of the debugger, or of the emulator, that runs the program: Arm's semihosting, which
   RISC-V has taken over with other instructions. */
#pragma once
#include <stdint.h>

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE0 = 4, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT_EXTENDED = 32 };

static inline intptr_t semihost(intptr_t operation, const void *argument) {
#if defined(__arm__)
  register intptr_t result __asm__("r0") = operation;
  register const void *block __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(result) : "r"(block) : "memory");
#else
  register intptr_t result __asm__("a0") = operation;
  register const void *block __asm__("a1") = argument;
  __asm__ volatile(".balign 16\n.option push\n.option norvc\n"
                   "slli zero, zero, 0x1f\nebreak\nsrai zero, zero, 7\n.option pop"
                   : "+r"(result) : "r"(block) : "memory");
#endif
  return result;
}

/* End the program with a code, which becomes that of the emulator's process. */
static inline _Noreturn void finish(intptr_t code) {
  const intptr_t block[2] = {0x20026 /* the application has ended */, code};
  semihost(SYS_EXIT_EXTENDED, block);
  for (;;) {
  }
}
