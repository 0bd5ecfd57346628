/* A plugin of qemu-user: counts the instructions that a program executes, and among them the vector
 * multiply-adds of single floats. At each getppid, which nothing else calls, it says both. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
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
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);

EXPORT int qemu_plugin_version = 1;

enum { GETPPID = 173 }; /* of Linux on aarch64 */

static uint64_t instructions, multiply_adds;

/* FMLA and FMLS of four singles, by vectors and by element (Arm ARM, C4.1). */
static bool is_multiply_add(uint32_t word) {
  return (word & 0xFF60FC00) == 0x4E20CC00 || (word & 0xFFC0B400) == 0x4F801000;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
  size_t all = qemu_plugin_tb_n_insns(block), found = 0;
  for (size_t i = 0; i < all; i++) {
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, i)), sizeof word);
    found += is_multiply_add(word);
  }
  qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, &instructions, all);
  if (found)
    qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD, &multiply_adds, found);
}

static void called(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b,
                   uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
  if (number == GETPPID)
    fprintf(stderr, "counted %" PRIu64 " %" PRIu64 "\n", instructions, multiply_adds);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
