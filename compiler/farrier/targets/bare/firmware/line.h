/* The UARTs that a line may be, by LINE: each with `line_begin`, `line_get` and `line_put`. */
#pragma once
#include <stdint.h>

#define REGISTER(offset) (*(volatile uint32_t *)(UART + (offset)))
enum { CMSDK = 1, NS16550, NRF, STM32F4 };

#if LINE == 1
/* Arm Cortex-M System Design Kit, Technical Reference Manual, 4.3. */
static void line_begin(void) {
  REGISTER(16) = 16; /* BAUDDIV: the least that it takes */
  REGISTER(8) = 3;   /* CTRL: both directions on */
}
uint8_t line_get(void) {
  while (!(REGISTER(4) & 2)) {
  }
  return (uint8_t)REGISTER(0);
}
void line_put(uint8_t byte) {
  while (REGISTER(4) & 1) {
  }
  REGISTER(0) = byte;
}

#elif LINE == 2
/* National Semiconductor PC16550D: registers of a byte. */
#define BYTE(offset) (*(volatile uint8_t *)(UART + (offset)))
static void line_begin(void) { BYTE(2) = 7; /* FCR: queues on, and empty */ }
uint8_t line_get(void) {
  while (!(BYTE(5) & 1)) {
  }
  return BYTE(0);
}
void line_put(uint8_t byte) {
  while (!(BYTE(5) & 0x20)) {
  }
  BYTE(0) = byte;
}

#elif LINE == 3
/* Nordic nRF52840 Product Specification, 6.33 (UART), at 115,200 baud; the pins of the development
   kit PCA10056, whose debugger has the other end. */
static void line_begin(void) {
  REGISTER(0x50C) = 6;          /* PSEL.TXD: P0.06 */
  REGISTER(0x514) = 8;          /* PSEL.RXD: P0.08 */
  REGISTER(0x524) = 0x01D7E000; /* BAUDRATE */
  REGISTER(0x500) = 4;          /* ENABLE */
  REGISTER(0x000) = 1;          /* TASKS_STARTRX */
  REGISTER(0x008) = 1;          /* TASKS_STARTTX */
}
uint8_t line_get(void) {
  while (!REGISTER(0x108)) { /* EVENTS_RXDRDY */
  }
  REGISTER(0x108) = 0;
  return (uint8_t)REGISTER(0x518);
}
void line_put(uint8_t byte) {
  REGISTER(0x11C) = 0; /* EVENTS_TXDRDY */
  REGISTER(0x51C) = byte;
  while (!REGISTER(0x11C)) {
  }
}

#elif LINE == 4
/* STMicroelectronics RM0383, 6.3, 8.4 and 19.6: USART2 on PA2 and PA3, where the debugger of a
   Nucleo board has the other end; 115,200 baud of the 16 MHz after reset. */
#define AT(address) (*(volatile uint32_t *)(address))
static void line_begin(void) {
  AT(0x40023830) |= 1u;       /* RCC_AHB1ENR: port A */
  AT(0x40023840) |= 1u << 17; /* RCC_APB1ENR: USART2 */
  AT(0x40020000) = (AT(0x40020000) & ~0xF0u) | 0xA0u;     /* GPIOA_MODER: alternate functions */
  AT(0x40020020) = (AT(0x40020020) & ~0xFF00u) | 0x7700u; /* GPIOA_AFRL: the 7th */
  REGISTER(0x08) = 139;                                   /* BRR: 16 MHz / 115,200 */
  REGISTER(0x0C) = 1u << 13 | 1u << 3 | 1u << 2;          /* CR1: on, both directions */
}
uint8_t line_get(void) {
  while (!(REGISTER(0) & 1u << 5)) { /* SR.RXNE */
  }
  return (uint8_t)REGISTER(4);
}
void line_put(uint8_t byte) {
  while (!(REGISTER(0) & 1u << 7)) { /* SR.TXE */
  }
  REGISTER(4) = byte;
}
#endif
