#define _GNU_SOURCE
#include "CL2CAP.h"

#include <stddef.h>
#include <sys/socket.h>

_Static_assert(sizeof(struct cl2cap_address) == 14, "the kernel's sockaddr_l2 has 14 bytes");

int cl2cap_accept(int descriptor) { return accept4(descriptor, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }
