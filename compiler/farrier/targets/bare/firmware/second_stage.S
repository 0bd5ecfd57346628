/* The second stage of the RP2040's boot loader. The ROM copies 256 bytes from the start of flash to
   RAM, wherever that is, and calls them if their checksum is right. Then it is up to them to make
   flash readable at its addresses, and to start the program: its vector table is at VECTORS.

   Every flash chip knows the command 03h: eight bits of it, then 24 bits of address, and the data
   follow at once, all over one line. RP2040 datasheet, 4.10.13, registers of the SSI; 2.4.8, VTOR. */
.syntax unified
.cpu cortex-m0plus
.thumb

.equ SSI, 0x18000000
.equ CTRLR0, 0x00
.equ CTRLR1, 0x04
.equ SSIENR, 0x08
.equ SER, 0x10
.equ BAUDR, 0x14
.equ SPI_CTRLR0, 0xf4
.equ VTOR, 0xe000ed08

/* One line (SPI_FRF = 0), frames of 32 bits, and data that are read after a command is sent. */
.equ FRAMES, (31 << 16) | (3 << 8)
/* The command, its eight bits (INST_L = 2), and an address of 6 times four bits. */
.equ READING, (0x03 << 24) | (2 << 8) | (6 << 2)
/* At 133 MHz, the fastest that the core may run, chips get 33 MHz: the command allows 50. */
.equ DIVISOR, 4

.section .second_stage, "ax"
.thumb_func
second_stage:
  ldr r3, =SSI
  movs r0, #0
  str r0, [r3, #SSIENR] /* The registers may change only while the SSI is off. */
  str r0, [r3, #CTRLR1] /* One frame is read at a time. */
  movs r1, #DIVISOR
  str r1, [r3, #BAUDR]
  ldr r1, =FRAMES
  str r1, [r3, #CTRLR0]
  ldr r1, =READING
  movs r2, #SPI_CTRLR0
  str r1, [r3, r2]
  movs r1, #1
  str r1, [r3, #SER] /* the only chip */
  str r1, [r3, #SSIENR]
  ldr r0, =VECTORS
  ldr r1, =VTOR
  str r0, [r1]
  ldr r1, [r0]
  msr msp, r1
  ldr r1, [r0, #4]
  bx r1
.ltorg
