// What Swift does not get from glibc for sockets: the kernel's constants of L2CAP channels, which only libbluetooth-dev has in
// headers, and Linux interfaces that Swift's Glibc module leaves out.
#ifndef CBLUEZ_L2CAP_H
#define CBLUEZ_L2CAP_H

#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

// Linux include/net/bluetooth/bluetooth.h and l2cap.h.
enum {
    CL2CAP_AF_BLUETOOTH = 31,
    CL2CAP_BTPROTO_L2CAP = 0,
    CL2CAP_SOL_BLUETOOTH = 274,
    CL2CAP_BT_SECURITY = 4,
    CL2CAP_BT_SNDMTU = 12,
    CL2CAP_BT_RCVMTU = 13,
    CL2CAP_BDADDR_LE_PUBLIC = 1,
    CL2CAP_BDADDR_LE_RANDOM = 2,
    /// An encrypted link.
    CL2CAP_BT_SECURITY_MEDIUM = 2,
};

/// BT_SECURITY.
struct cl2cap_security {
    uint8_t level;
    uint8_t key_size;
};

/// `struct sockaddr_l2`. The PSM and the CID are little-endian, and the address begins with its last byte.
struct cl2cap_address {
    uint16_t family;
    uint16_t psm;
    uint8_t address[6];
    uint16_t cid;
    uint8_t address_type;
};

/// `accept4` with SOCK_CLOEXEC and SOCK_NONBLOCK. Returns the descriptor, or -1 with `errno`.
int cl2cap_accept(int descriptor);

enum { CL2CAP_MOST_DESCRIPTORS = 16 };

/// `sendmsg` of bytes, and of at most CL2CAP_MOST_DESCRIPTORS descriptors that go with the first of them.
ssize_t cl2cap_send(int socket, const void *bytes, size_t length, const int *descriptors, size_t count, int flags);

/// `recvmsg` with MSG_CMSG_CLOEXEC. Writes the descriptors that came, at most CL2CAP_MOST_DESCRIPTORS, and their number.
ssize_t cl2cap_receive(int socket, void *bytes, size_t length, int *descriptors, size_t *count, int flags);

enum {
    CL2CAP_CLASSIC_LINK = 1,
    CL2CAP_LE_LINK = 2,
    /// The device has made the link of classic Bluetooth.
    CL2CAP_INCOMING_CLASSIC_LINK = 4,
};

/// Which links the kernel has between the adapter `hci<adapter>` and a device with this public or identity address, in
/// the order in which it is written. 0: none, or this process cannot know: no Bluetooth sockets in its sandbox, or in its
/// network namespace. No privilege is needed (HCIGETCONNLIST in net/bluetooth/hci_sock.c).
int cl2cap_link_bearers(uint16_t adapter, uint64_t address);

/// The user of the process at the other end of a Unix socket, or -1.
int64_t cl2cap_peer_user(int socket);

/// The process there, or 0.
pid_t cl2cap_peer_process(int socket);

/// `pidfd_open`: a descriptor that can be read when the process has ended, or -1.
int cl2cap_process_end(pid_t process);

/// The program that is started runs in that directory.
int cl2cap_spawn_in(posix_spawn_file_actions_t *actions, const char *directory);

/// Memory to share: a descriptor of `size` bytes, all zero, whose size no one can change. -1 with `errno`.
int cl2cap_shared_memory(size_t size);

#endif
