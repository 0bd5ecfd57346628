/* From reset to the program: memory as C expects it, the units of floats and vectors on; and from a
   fault, or a call that takes too long, back to it. */
#include "start.h"

extern uint8_t data_from[], data_begin[], data_end[], bss_begin[];

static __attribute__((used)) _Noreturn void begin(void) {
  for (uint32_t i = 0; i < (uint32_t)(data_end - data_begin); i++) data_begin[i] = data_from[i];
  for (volatile uint8_t *p = bss_begin; p < bss_end; p++) *p = 0;
  run();
}

static uint32_t cause, place;

static __attribute__((used)) _Noreturn void resume(void) { recover(cause, place); }

#if defined(__arm__)

/* Armv7-M Architecture Reference Manual: B3.2.20, B3.2.23, B3.3.3 to B3.3.5. */
#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define FPCCR (*(volatile uint32_t *)0xE000EF34u)
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
enum { SYSTICK = 15, LONGEST = 0xFFFFFF };

static volatile uint32_t rounds;

#if !defined(CORE_KHZ)
#define CORE_KHZ 100000u
#endif

void start_watch(uint32_t milliseconds) {
  rounds = (uint32_t)((uint64_t)milliseconds * CORE_KHZ >> 24) + 1; /* LONGEST + 1 is 2^24. */
  SYST_RVR = LONGEST;
  SYST_CVR = 0;
  SYST_CSR = 7; /* the core's clock, an interrupt at zero, on */
}

void stop_watch(void) { SYST_CSR = 0; }

static __attribute__((used)) int is_over(void) { return rounds-- == 0; }

/* `sp` is that of the exception's frame, which has the address of the instruction behind six
   registers; a stack that has left its place has none. */
static __attribute__((used)) void note(uint32_t number, uintptr_t sp) {
  SYST_CSR = 0;
  cause = number == SYSTICK ? OUT_OF_TIME : number;
  place = sp >= (uintptr_t)bss_end && sp + 32 <= (uintptr_t)stack_top ? ((uint32_t *)sp)[6] : 0;
}

/* The stack that is left may be full, or elsewhere. */
static __attribute__((used)) uint64_t own_stack[16];

/* Return from the exception with a frame of our own, at the top of the stack. */
__attribute__((naked)) void fault(void) {
  __asm__ volatile(
      "mrs r0, ipsr\nmov r1, sp\nldr r2, =own_stack\nadds r2, #128\nmov sp, r2\nbl note\n"
      "ldr r2, =stack_top\nsubs r2, #32\nmov sp, r2\n"
      "movs r0, #1\nldr r1, =resume\nbics r1, r0\nstr r1, [r2, #24]\n"
      "movs r0, #1\nlsls r0, r0, #24\nstr r0, [r2, #28]\n" /* EPSR.T */
      "ldr r0, =0xFFFFFFF9\nbx r0\n" /* thread mode, the main stack, no floats */
      ".ltorg\n");
}

static __attribute__((naked)) void tick(void) {
  __asm__ volatile("push {r3, lr}\nbl is_over\ncmp r0, #0\nbne 1f\npop {r3, pc}\n"
                   "1: add sp, #8\nb fault\n");
}

void reset(void) {
#if __ARM_ARCH > 6
  CPACR = 0xFu << 20; /* full access to coprocessors 10 and 11: floats, and MVE's vectors */
  __asm__ volatile("dsb\nisb");
#endif
#if defined(__ARM_FP)
  FPCCR &= ~(3u << 30); /* No exception keeps floats: the handlers use none. */
#endif
  begin();
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    stack_top, reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault, tick};

#else

/* The RISC-V Instruction Set Manual, volume II, 3.1; a core-local interruptor as SiFive's. */
#if defined(MTIMER)
#define MTIME (*(volatile uint64_t *)(MTIMER + 0x7FF8u))
#define MTIMECMP ((volatile uint32_t *)MTIMER)

static void set_alarm(uint64_t at) {
  MTIMECMP[1] = 0xFFFFFFFFu;
  MTIMECMP[0] = (uint32_t)at;
  MTIMECMP[1] = (uint32_t)(at >> 32);
}

static uint64_t now(void) {
  const volatile uint32_t *const half = (const volatile uint32_t *)(MTIMER + 0x7FF8u);
  uint32_t high, low;
  do high = half[1], low = half[0];
  while (high != half[1]);
  return (uint64_t)high << 32 | low;
}

void start_watch(uint32_t milliseconds) {
  set_alarm(now() + (uint64_t)milliseconds * MTIMER_KHZ);
  __asm__ volatile("csrs mie, %0\ncsrs mstatus, %1" ::"r"(0x80), "r"(8)); /* MTIE, MIE */
}

void stop_watch(void) { __asm__ volatile("csrc mstatus, %0\ncsrc mie, %1" ::"r"(8), "r"(0x80)); }
#else
void start_watch(uint32_t milliseconds) { (void)milliseconds; }
void stop_watch(void) {}
#endif

enum { TIMER = 0x80000007u };

static __attribute__((used)) void note(uint32_t number, uint32_t at) {
  stop_watch();
  cause = number == TIMER ? OUT_OF_TIME : number;
  place = at;
}

static __attribute__((naked, used, aligned(4))) void trap(void) {
  __asm__ volatile("csrr a0, mcause\ncsrr a1, mepc\nla sp, stack_top\ncall note\n"
                   "la t0, resume\ncsrw mepc, t0\nla sp, stack_top\nmret\n");
}

__attribute__((naked, section(".vectors"), used)) void reset(void) {
  __asm__ volatile(".option push\n.option norelax\nla gp, __global_pointer$\n.option pop\n"
                   "la sp, stack_top\nla t0, %0\ncsrw mtvec, t0\n"
#if defined(__riscv_flen)
                   "li t0, 0x2000\ncsrs mstatus, t0\n" /* FS: the unit of floats is on */
#endif
                   "j %1" ::"i"(trap), "i"(begin));
}

#endif
