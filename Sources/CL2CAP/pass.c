#define _GNU_SOURCE
#include "CL2CAP.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

typedef union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * CL2CAP_MOST_DESCRIPTORS)];
} Control;

ssize_t cl2cap_send(int socket, const void *bytes, size_t length, const int *descriptors, size_t count, int flags) {
    struct iovec part = {.iov_base = (void *)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    Control control = {0};
    if (count > CL2CAP_MOST_DESCRIPTORS) {
        errno = EINVAL;
        return -1;
    }
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(header), descriptors, sizeof(int) * count);
    }
    return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

ssize_t cl2cap_receive(int socket, void *bytes, size_t length, int *descriptors, size_t *count, int flags) {
    struct iovec part = {.iov_base = bytes, .iov_len = length};
    Control control = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control)};
    *count = 0;
    ssize_t received = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    if (received < 0) return received;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        size_t found = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < found; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            if (*count < CL2CAP_MOST_DESCRIPTORS) {
                descriptors[(*count)++] = descriptor;
            } else {
                close(descriptor);
            }
        }
    }
    return received;
}

int64_t cl2cap_peer_user(int socket) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? (int64_t)peer.uid : -1;
}

pid_t cl2cap_peer_process(int socket) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

// SYS_pidfd_open, the same on every architecture: the C library's function is newer.
int cl2cap_process_end(pid_t process) { return (int)syscall(434, process, 0); }

int cl2cap_spawn_in(posix_spawn_file_actions_t *actions, const char *directory) {
    return posix_spawn_file_actions_addchdir_np(actions, directory);
}

int cl2cap_shared_memory(size_t size) {
    int descriptor = memfd_create("bluezkit-keeper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) return -1;
    if (ftruncate(descriptor, (off_t)size) == 0
        && fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        return descriptor;
    }
    int reason = errno;
    close(descriptor);
    errno = reason;
    return -1;
}
