// Counts the instructions that a program executes in user space, in all its threads: a plugin of QEMU, which emulates the
// program, `qemu-aarch64 -plugin FILE PROGRAM...`. At the program's end "instructions NUMBER" is printed to standard error.
//
// Debian's QEMU comes without the header of this interface. What is used of it is the same since version 1 of it, of QEMU
// 4.2. QEMU translates a block of instructions when it is first reached; what is added to a block here is called whenever
// it is executed. (QEMU 7.2 can add a number without a call as well, but two threads that do so at once lose one of the two.)
#include <inttypes.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum { QEMU_PLUGIN_CB_NO_REGS = 0 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, void (*translated)(uint64_t plugin, struct qemu_plugin_tb *block));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, void (*executed)(unsigned thread, void *data),
                                          int registers, void *data);
void qemu_plugin_register_atexit_cb(uint64_t plugin, void (*ended)(uint64_t plugin, void *data), void *data);

int qemu_plugin_version = 1;

static _Atomic uint64_t instructions;

static void count(unsigned thread, void *number) {
    (void)thread;
    atomic_fetch_add_explicit(&instructions, (uintptr_t)number, memory_order_relaxed);
}

static void count_in(uint64_t plugin, struct qemu_plugin_tb *block) {
    (void)plugin;
    uintptr_t number = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, count, QEMU_PLUGIN_CB_NO_REGS, (void *)number);
}

static void print(uint64_t plugin, void *data) {
    (void)plugin, (void)data;
    fprintf(stderr, "instructions %" PRIu64 "\n", instructions);
}

int qemu_plugin_install(uint64_t plugin, const void *information, int argc, char **argv) {
    (void)information, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, count_in);
    qemu_plugin_register_atexit_cb(plugin, print, NULL);
    return 0;
}
