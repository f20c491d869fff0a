// Kills a program at the N-th system call that it enters, in whatever thread, counted from the first line that begins
// with "begin " on its standard output, or, where N has a plus sign, from the first one on.
//
//     kill-at [+]N PROGRAM [ARGUMENT...]
//
// When the program ends before that, a last line on standard output says "calls M": how many there were.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int begins_counting(pid_t thread, const struct __ptrace_syscall_info *call) {
    char text[6] = "";
    if (call->entry.nr != SYS_write || call->entry.args[0] != STDOUT_FILENO) return 0;
    struct iovec here = {text, sizeof text}, there = {(void *)call->entry.args[1], sizeof text};
    return process_vm_readv(thread, &here, 1, &there, 1, 0) == sizeof text && memcmp(text, "begin ", 6) == 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: kill-at [+]N PROGRAM [ARGUMENT...]\n"), 64;
    const long last = atol(argv[1]);
    const pid_t program = fork();
    if (program == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);  // until the tracer has set its options
        execv(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    if (program < 0 || waitpid(program, &status, __WALL) < 0) return perror("kill-at"), 125;
    ptrace(PTRACE_SETOPTIONS, program, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    ptrace(PTRACE_SYSCALL, program, 0, 0);

    long calls = argv[1][0] == '+' ? 0 : -1;  // not counting yet
    for (;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) break;
        if (!WIFSTOPPED(status)) {
            if (thread == program) break;
            continue;
        }
        const int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info call;
            const long size = ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof call, &call);
            if (size > 0 && call.op == PTRACE_SYSCALL_INFO_ENTRY) {
                if (calls < 0 && begins_counting(thread, &call)) calls = 0;
                if (calls >= 0 && ++calls == last) {
                    kill(program, SIGKILL);
                    continue;
                }
            }
            ptrace(PTRACE_SYSCALL, thread, 0, 0);
        } else {
            // New threads stop once; a real signal is passed on.
            const int event = status >> 16;
            ptrace(PTRACE_SYSCALL, thread, 0, event || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
        }
    }
    if (calls < last) printf("calls %ld\n", calls);
    return 0;
}
