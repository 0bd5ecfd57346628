/* A plugin of qemu-user: counts the instructions that a program executes, and among them the vector
 * multiply-adds of single floats and the dot and matrix products of bytes and bf16. At each getppid,
 * which nothing else calls, it says both, and the latter once more by the blocks that they are in:
 * their addresses and instructions. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From qemu's include/qemu/qemu-plugin.h, interface version 1, which Debian does not package. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
#define EXPORT __attribute__((visibility("default")))
enum { INLINE_ADD = 0 };
extern void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(
    struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_vcpu_syscall_cb(
    qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                               uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

EXPORT int qemu_plugin_version = 1;

enum { GETPPID = 173 }; /* of Linux on aarch64 */

static uint64_t instructions;

/* A block of code with multiply-adds, and how many of them were executed. */
struct block {
  uint64_t address, instructions, multiply_adds;
  struct block *next;
};
static struct block *blocks;

/* FMLA and FMLS of four singles, by vectors and by element (Arm ARM, C4.1). */
static bool is_fused(uint32_t word) {
  return (word & 0xFF60FC00) == 0x4E20CC00 || (word & 0xFFC0B400) == 0x4F801000;
}

/* SDOT, UDOT, USDOT and SUDOT of four sums: by vectors; by element, those of one signedness and those
 * of two. */
static bool is_dot_product(uint32_t word) {
  return (word & 0xDFE0F400) == 0x4E809400 || (word & 0xDFC0F400) == 0x4F80E000 ||
         (word & 0xFF40F400) == 0x4F00F000;
}

/* BFDOT, by vectors and by element, BFMMLA; SMMLA, UMMLA and USMMLA. */
static bool is_matrix_product(uint32_t word) {
  return (word & 0xFFE0EC00) == 0x6E40EC00 || (word & 0xFFC0F400) == 0x4F40F000 ||
         (word & 0xDFE0F400) == 0x4E80A400;
}

static bool is_multiply_add(uint32_t word) {
  return is_fused(word) || is_dot_product(word) || is_matrix_product(word);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
  size_t all = qemu_plugin_tb_n_insns(block), found = 0;
  for (size_t i = 0; i < all; i++) {
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, i)), sizeof word);
    found += is_multiply_add(word);
  }
  qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, &instructions, all);
  if (found == 0)
    return;
  struct block *one = calloc(1, sizeof *one);
  if (one == NULL)
    abort();
  one->address = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, 0));
  one->instructions = all;
  do { /* threads may translate beside each other */
    one->next = blocks;
  } while (!__sync_bool_compare_and_swap(&blocks, one->next, one));
  qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, &one->multiply_adds, found);
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b,
                   uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  if (number != GETPPID)
    return;
  fprintf(stderr, "counted %" PRIu64 "\n", instructions);
  for (struct block *one = blocks; one; one = one->next)
    fprintf(stderr, "block %" PRIx64 " %" PRIu64 " %" PRIu64 "\n", one->address,
            one->instructions, one->multiply_adds);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
