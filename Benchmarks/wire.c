// wire: a second floor, which shows what the bus itself leaves to win: the receive side without libdbus. The socket is read in
// large blocks, and messages are framed and read in place. It checks nothing: it trusts dbus-daemon, as no library may.
//
// Usage: wire notify COUNT [latency] | wire scan
// The bus is that of DBUS_SYSTEM_BUS_ADDRESS (unix:path=). Prints one line of JSON; the fields are those of floor.
#include <dbus/dbus.h>  // what is sent is written by libdbus

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "measure.h"

static const char *const SENSOR = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01";
static const char *const HEART_RATE = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01/service000a/char000b";
static const char *const MARKS = "/org/bluez/hci0/dev_C0_FF_00_1E_84_8";

// reading -----------------------------------------------------------------------------------------------------

typedef struct {
    const uint8_t *bytes;
    uint32_t at;
} cursor_t;

/// What routes a message, and where its body begins.
typedef struct {
    const char *path, *member, *signature;
    uint32_t reply_to;
    cursor_t body;
    uint8_t type;
} message_t;

static int bus;
static uint8_t buffer[1 << 20];
static size_t from, until;

static void align(cursor_t *cursor, uint32_t size) { cursor->at = (cursor->at + size - 1) & ~(size - 1); }

static uint32_t number(cursor_t *cursor) {
    uint32_t value;
    align(cursor, 4);
    memcpy(&value, cursor->bytes + cursor->at, 4);
    cursor->at += 4;
    return value;
}

static const char *text(cursor_t *cursor) {
    uint32_t length = number(cursor);
    const char *start = (const char *)cursor->bytes + cursor->at;
    cursor->at += length + 1;
    return start;
}

static const char *signature(cursor_t *cursor) {
    const char *start = (const char *)cursor->bytes + cursor->at + 1;
    cursor->at += cursor->bytes[cursor->at] + 2u;
    return start;
}

/// The next whole message, which stays until the next call.
static message_t next(void) {
    for (;;) {
        cursor_t cursor = {.bytes = buffer + from, .at = 4};
        if (until - from >= 16) {
            uint32_t body = number(&cursor), serial = number(&cursor), fields = number(&cursor);
            uint32_t header = (16 + fields + 7) & ~7u;
            (void)serial;
            if (until - from >= header + body) {
                message_t message = {.type = buffer[from + 1], .body = {buffer + from, header}};
                while (cursor.at < 16 + fields) {
                    align(&cursor, 8);
                    uint8_t code = buffer[from + cursor.at++];
                    const char *type = signature(&cursor);
                    if (*type == 'u') {
                        uint32_t value = number(&cursor);
                        if (code == DBUS_HEADER_FIELD_REPLY_SERIAL) message.reply_to = value;
                    } else if (*type == 'g') {
                        message.signature = signature(&cursor);
                    } else {
                        const char *value = text(&cursor);
                        if (code == DBUS_HEADER_FIELD_PATH) message.path = value;
                        if (code == DBUS_HEADER_FIELD_MEMBER) message.member = value;
                    }
                }
                from += header + body;
                return message;
            }
        }
        memmove(buffer, buffer + from, until -= from);
        from = 0;
        ssize_t count = recv(bus, buffer + until, sizeof buffer - until, 0);
        if (count <= 0) fail("the bus has gone");
        until += (size_t)count;
    }
}

/// Looks at every value of the type at `*type`, which moves to the next one.
static long walk(cursor_t *cursor, const char **type) {
    const char *inner;
    long count = 0;
    switch (*(*type)++) {
        case 'y': cursor->at++; return 1;
        case 'n': case 'q': align(cursor, 2); cursor->at += 2; return 1;
        case 'b': case 'i': case 'u': case 'h': number(cursor); return 1;
        case 'x': case 't': case 'd': align(cursor, 8); cursor->at += 8; return 1;
        case 's': case 'o': text(cursor); return 1;
        case 'g': signature(cursor); return 1;
        case 'v': inner = signature(cursor); return walk(cursor, &inner);
        case '(': case '{':
            align(cursor, 8);
            while (**type != ')' && **type != '}') count += walk(cursor, type);
            ++*type;
            return count;
        default: {  // an array
            const char *element = *type;
            uint32_t length = number(cursor);
            if (*element == '{' || *element == '(') align(cursor, 8);
            uint32_t end = cursor->at + length;
            if (*element == 'y') cursor->at = end;
            while (cursor->at < end) inner = element, count += walk(cursor, &inner);
            for (int depth = 0;; (*type)++) {
                if (**type == 'a') continue;
                depth += (**type == '(' || **type == '{') - (**type == ')' || **type == '}');
                if (!depth) break;
            }
            ++*type;
            return count;
        }
    }
}

// sending -----------------------------------------------------------------------------------------------------

static void send_all(const void *bytes, size_t count) {
    for (size_t sent = 0; sent < count;) {
        ssize_t now = send(bus, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (now < 0) fail("cannot send");
        sent += (size_t)now;
    }
}

/// Calls, and waits for the answer; `text`: the argument, NULL for none.
static void call(const char *destination, const char *path, const char *interface, const char *member, const char *text) {
    static dbus_uint32_t serial;
    char *bytes;
    int count;
    DBusMessage *message = dbus_message_new_method_call(destination, path, interface, member);
    if (text) dbus_message_append_args(message, DBUS_TYPE_STRING, &text, DBUS_TYPE_INVALID);
    dbus_message_set_serial(message, ++serial);
    if (!dbus_message_marshal(message, &bytes, &count)) fail("out of memory");
    send_all(bytes, (size_t)count);
    dbus_free(bytes);
    dbus_message_unref(message);
    for (message_t answer; (answer = next()).reply_to != serial;) continue;
}

static void call_bus(const char *member, const char *text) {
    call(DBUS_SERVICE_DBUS, DBUS_PATH_DBUS, DBUS_INTERFACE_DBUS, member, text);
}

static void connect_bus(void) {
    const char *prefix = "unix:path=", *address = getenv("DBUS_SYSTEM_BUS_ADDRESS");
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char user[16], login[64], answer[128];
    if (!address || strncmp(address, prefix, strlen(prefix))) fail("no unix:path= in DBUS_SYSTEM_BUS_ADDRESS");
    snprintf(name.sun_path, sizeof name.sun_path, "%s", address + strlen(prefix));
    bus = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(bus, (struct sockaddr *)&name, sizeof name)) fail("no bus");
    // EXTERNAL: the user's number, each digit in hexadecimal.
    size_t length = 1 + (size_t)snprintf(login + 1, sizeof login - 1, "AUTH EXTERNAL ");
    login[0] = 0;
    int digits = snprintf(user, sizeof user, "%u", getuid());
    for (int i = 0; i < digits; i++) length += (size_t)snprintf(login + length, sizeof login - length, "3%c", user[i]);
    login[length++] = '\r', login[length++] = '\n';
    send_all(login, length);
    if (recv(bus, answer, sizeof answer, 0) < 3 || memcmp(answer, "OK ", 3)) fail("the bus refuses");
    send_all("BEGIN\r\n", 7);
    call_bus("Hello", NULL);
}

// the work ----------------------------------------------------------------------------------------------------

static void notify(long count) {
    char rule[256];
    snprintf(rule, sizeof rule, "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',"
             "member='PropertiesChanged',path_namespace='%s'", SENSOR);
    call_bus("AddMatch", rule);
    call("org.bluez", SENSOR, "org.bluez.Device1", "Connect", NULL);
    call("org.bluez", HEART_RATE, "org.bluez.GattCharacteristic1", "StartNotify", NULL);
    measurement_t before = measure(), first = before;
    for (long received = 0; received < count;) {
        message_t message = next();
        if (message.type != DBUS_MESSAGE_TYPE_SIGNAL || strcmp(message.path, HEART_RATE)) continue;
        // Begins with 'Notifying'; the rest are values.
        text(&message.body), number(&message.body), align(&message.body, 8);
        if (*text(&message.body) != 'V') continue;
        if (received++ == 0) first = measure();
        if (latencies) signature(&message.body), number(&message.body), note_latency(message.body.bytes + message.body.at);
    }
    print_events(count, &before, &first);
}

static void scan(void) {
    long events[3] = {0};
    measurement_t at[3];
    int marks = 0;
    call_bus("AddMatch", "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.ObjectManager'");
    call_bus("AddMatch", "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',"
             "member='PropertiesChanged',arg0='org.bluez.Device1'");
    call("org.bluez", "/org/bluez/hci0", "org.bluez.Adapter1", "StartDiscovery", NULL);
    while (marks < 3) {
        message_t message = next();
        cursor_t body = message.body;
        bool is_mark = message.member && *message.member == 'I' && !strncmp(text(&body), MARKS, strlen(MARKS));
        for (const char *type = message.signature; *type;) walk(&message.body, &type);
        if (is_mark) at[marks++] = measure();
        else events[marks]++;
    }
    print_scan(events, at);
}

int main(int argc, char **argv) {
    connect_bus();
    if (argc == 4 && !strcmp(argv[3], "latency") && !(latencies = calloc((size_t)atol(argv[2]), sizeof *latencies)))
        fail("out of memory");
    if (argc >= 3 && !strcmp(argv[1], "notify")) notify(atol(argv[2]));
    else if (argc == 2 && !strcmp(argv[1], "scan")) scan();
    else fail("usage: wire notify COUNT [latency] | wire scan");
}
