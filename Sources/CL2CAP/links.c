#define _GNU_SOURCE
#include "CL2CAP.h"

#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

// Linux include/net/bluetooth/hci_sock.h, hci.h and bluetooth.h.
enum {
    BTPROTO_HCI = 1,
    ACL_LINK = 0x01,
    LE_LINK = 0x80,
    BT_CONNECTED = 1,
    // It is up, and the kernel asks what it can do.
    BT_CONFIG = 7,
    MOST_LINKS = 128,
};
#define HCIGETCONNLIST _IOR('H', 212, int)

// `struct hci_conn_info`.
struct link {
    uint16_t handle;
    uint8_t address[6];
    uint8_t type;
    uint8_t is_outgoing;
    uint16_t state;
    uint32_t mode;
};

// `struct hci_conn_list_req`.
struct list {
    uint16_t adapter;
    uint16_t count;
    struct link links[MOST_LINKS];
};

_Static_assert(sizeof(struct link) == 16 && offsetof(struct list, links) == 4, "as the kernel has them");

int cl2cap_link_bearers(uint16_t adapter, uint64_t address) {
    struct list list = {.adapter = adapter, .count = MOST_LINKS};
    uint8_t wanted[6];
    for (size_t i = 0; i < sizeof(wanted); i++) wanted[i] = (uint8_t)(address >> (8 * i));
    int descriptor = socket(CL2CAP_AF_BLUETOOTH, SOCK_RAW | SOCK_CLOEXEC, BTPROTO_HCI);
    if (descriptor < 0) return 0;
    int status = ioctl(descriptor, HCIGETCONNLIST, &list);
    close(descriptor);
    if (status < 0) return 0;
    int bearers = 0;
    for (size_t i = 0; i < list.count && i < MOST_LINKS; i++) {
        const struct link *link = &list.links[i];
        if (link->state != BT_CONNECTED && link->state != BT_CONFIG) continue;
        if (memcmp(link->address, wanted, sizeof(wanted)) != 0) continue;
        if (link->type == ACL_LINK) bearers |= CL2CAP_CLASSIC_LINK | (link->is_outgoing ? 0 : CL2CAP_INCOMING_CLASSIC_LINK);
        if (link->type == LE_LINK) bearers |= CL2CAP_LE_LINK;
    }
    return bearers;
}
