// What Swift does not get from glibc for the sockets of L2CAP channels: the kernel's constants, which only libbluetooth-dev has
// in headers, and two Linux interfaces that Swift's Glibc module leaves out.
#ifndef CBLUEZ_L2CAP_H
#define CBLUEZ_L2CAP_H

#include <stdint.h>
#include <sys/epoll.h>

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

#endif
