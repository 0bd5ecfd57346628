/* The hooks of a program: `start.c` calls them. */
#pragma once
#include <stdint.h>

extern uint8_t bss_end[], stack_top[];

/* The program itself. */
_Noreturn void run(void);

/* The program goes on here after a fault, with an empty stack: `cause` is the number of the
   exception, and `at` the address of the instruction, 0 if nobody knows it. */
_Noreturn void recover(uint32_t cause, uint32_t at);

/* The cause of a call that did not return in time. */
enum { OUT_OF_TIME = 0xFFFF };

/* Have `recover` called unless `stop_watch` is called within so many milliseconds. */
void start_watch(uint32_t milliseconds);
void stop_watch(void);
