// floor: the cost of the benchmark's work for a C program on libdbus that has no object model, makes no callbacks and
// keeps nothing. It subscribes to the same signals as BluezKit.
//
// Usage: floor MODE, see USAGE. `notify` reads signals, `acquire` BlueZ's socket; `write` writes without response to that of
// AcquireWrite, `write-value` with response. With `hop` each batch of values wakes a second thread, as in any client that
// makes its callbacks on a queue. With `latency` it also measures how late values of at least 12 bytes come. `idle` subscribes, says so, and stays.
// The bus is that of DBUS_SYSTEM_BUS_ADDRESS. Prints one line of JSON; the fields are those of bluezkit-bench.
#include <dbus/dbus.h>

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "measure.h"

static const char *const USAGE =
    "usage: floor start | notify COUNT [hop] [latency] | idle | scan | acquire COUNT [hop] [latency] | write COUNT SIZE | write-value COUNT SIZE |\n"
    "  channel-send BYTES | channel-receive BYTES";

static const char *const SENSOR = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01";
static const char *const HEART_RATE = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01/service000a/char000b";
static const char *const CONTROL = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01/service000a/char0014";

static DBusConnection *bus;

// the bus -----------------------------------------------------------------------------------------------------

static void add_match(const char *rule) { dbus_bus_add_match(bus, rule, NULL); }

/// Waits for the answer, which is the caller's.
static DBusMessage *call(const char *path, const char *interface, const char *member, const char *text1,
                         const char *text2) {
    DBusMessage *message = dbus_message_new_method_call("org.bluez", path, interface, member);
    if (text1) dbus_message_append_args(message, DBUS_TYPE_STRING, &text1, DBUS_TYPE_INVALID);
    if (text2) dbus_message_append_args(message, DBUS_TYPE_STRING, &text2, DBUS_TYPE_INVALID);
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, message, 10000, NULL);
    if (!reply) fail(member);
    dbus_message_unref(message);
    return reply;
}

static void do_call(const char *path, const char *interface, const char *member) {
    dbus_message_unref(call(path, interface, member, NULL, NULL));
}

/// The rules and the question with which BluezKit starts.
static bool start(void) {
    DBusMessageIter iter, variant;
    dbus_bool_t powered = FALSE;
    bus = dbus_bus_get_private(DBUS_BUS_SYSTEM, NULL);
    if (!bus) fail("no bus");
    add_match("type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',member='NameOwnerChanged',"
              "path='/org/freedesktop/DBus',arg0='org.bluez'");
    add_match("type='signal',sender='org.bluez',interface='org.freedesktop.DBus.ObjectManager'");
    add_match("type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',"
              "arg0='org.bluez.Adapter1'");
    DBusMessage *reply = call("/org/bluez/hci0", DBUS_INTERFACE_PROPERTIES, "Get", "org.bluez.Adapter1", "Powered");
    dbus_message_iter_init(reply, &iter);
    dbus_message_iter_recurse(&iter, &variant);
    dbus_message_iter_get_basic(&variant, &powered);
    dbus_message_unref(reply);
    return powered;
}

static sem_t batches;

static void *wait_for_batches(void *unused) {
    while (!sem_wait(&batches)) continue;
    return unused;
}

static DBusMessage *next_message(void) {
    for (DBusMessage *message;;) {
        if ((message = dbus_connection_pop_message(bus))) return message;
        if (!dbus_connection_read_write(bus, -1)) fail("the bus has gone");
    }
}

// the work ----------------------------------------------------------------------------------------------------

static void notify(long count, bool hops) {
    pthread_t thread;
    char rule[256];
    snprintf(rule, sizeof rule, "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',"
             "member='PropertiesChanged',path_namespace='%s'", SENSOR);
    add_match(rule);
    do_call(SENSOR, "org.bluez.Device1", "Connect");
    do_call(HEART_RATE, "org.bluez.GattCharacteristic1", "StartNotify");
    if (hops && (sem_init(&batches, 0, 0) || pthread_create(&thread, NULL, wait_for_batches, NULL))) fail("no thread");
    if (count == LONG_MAX) puts("{}"), fflush(stdout);
    measurement_t before = measure(), first = before;
    for (long received = 0, handed_on = 0; received < count;) {
        DBusMessage *message = dbus_connection_pop_message(bus);
        if (!message) {
            if (hops && handed_on < received) sem_post(&batches);
            handed_on = received;
            message = next_message();
        }
        if (dbus_message_has_path(message, HEART_RATE) && dbus_message_has_member(message, "PropertiesChanged")) {
            // Begins with 'Notifying'; the rest are values.
            DBusMessageIter iter, entries, entry, variant, array;
            const char *key;
            dbus_message_iter_init(message, &iter);
            dbus_message_iter_next(&iter);
            dbus_message_iter_recurse(&iter, &entries);
            dbus_message_iter_recurse(&entries, &entry);
            dbus_message_iter_get_basic(&entry, &key);
            if (key[0] == 'V') {
                if (received++ == 0) first = measure();
                if (latencies) {
                    const unsigned char *bytes;
                    int length;
                    dbus_message_iter_next(&entry);
                    dbus_message_iter_recurse(&entry, &variant);
                    dbus_message_iter_recurse(&variant, &array);
                    dbus_message_iter_get_fixed_array(&array, &bytes, &length);
                    note_latency(bytes);
                }
            }
        }
        dbus_message_unref(message);
    }
    print_events(count, &before, &first);
}

static int acquire(const char *path, const char *member) {
    DBusMessage *reply, *message = dbus_message_new_method_call("org.bluez", path, "org.bluez.GattCharacteristic1", member);
    DBusMessageIter iter, options;
    int socket = -1;
    dbus_message_iter_init_append(message, &iter);
    dbus_message_iter_open_container(&iter, DBUS_TYPE_ARRAY, "{sv}", &options);
    dbus_message_iter_close_container(&iter, &options);
    reply = dbus_connection_send_with_reply_and_block(bus, message, 10000, NULL);
    if (!reply || !dbus_message_get_args(reply, NULL, DBUS_TYPE_UNIX_FD, &socket, DBUS_TYPE_INVALID)) fail(member);
    dbus_message_unref(reply);
    dbus_message_unref(message);
    return socket;
}

static void acquire_notify(long count, bool hops) {
    pthread_t thread;
    char bytes[512];
    do_call(SENSOR, "org.bluez.Device1", "Connect");
    int socket = acquire(HEART_RATE, "AcquireNotify");
    if (hops && (sem_init(&batches, 0, 0) || pthread_create(&thread, NULL, wait_for_batches, NULL))) fail("no thread");
    measurement_t before = measure(), first = before;
    for (long received = 0; received < count;) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        if (recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
            if (received++ == 0) first = measure();
            if (latencies) note_latency(bytes);
            continue;
        }
        if (hops && received) sem_post(&batches);
        poll(&ready, 1, -1);
    }
    print_events(count, &before, &first);
}

static void write_values(long count, size_t size) {
    char bytes[512] = {0};
    do_call(SENSOR, "org.bluez.Device1", "Connect");
    int socket = acquire(CONTROL, "AcquireWrite");
    measurement_t before = measure();
    for (long sent = 0; sent < count;) {
        struct pollfd ready = {.fd = socket, .events = POLLOUT};
        memcpy(bytes, &(dbus_uint32_t){(dbus_uint32_t)sent}, 4);
        if (send(socket, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) sent++;
        else if (errno == EAGAIN) poll(&ready, 1, -1);
        else fail("the socket is closed");
    }
    print_events(count, &before, &before);
}

/// One after the other, each with BlueZ's answer.
static void write_with_response(long count, int size) {
    static const unsigned char bytes[512], *value = bytes;
    do_call(SENSOR, "org.bluez.Device1", "Connect");
    measurement_t before = measure();
    for (long sent = 0; sent < count; sent++) {
        const char *key = "type", *type = "request";
        DBusMessageIter iter, options, entry, variant;
        DBusMessage *reply, *message =
            dbus_message_new_method_call("org.bluez", CONTROL, "org.bluez.GattCharacteristic1", "WriteValue");
        dbus_message_append_args(message, DBUS_TYPE_ARRAY, DBUS_TYPE_BYTE, &value, size, DBUS_TYPE_INVALID);
        dbus_message_iter_init_append(message, &iter);
        dbus_message_iter_open_container(&iter, DBUS_TYPE_ARRAY, "{sv}", &options);
        dbus_message_iter_open_container(&options, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
        dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &key);
        dbus_message_iter_open_container(&entry, DBUS_TYPE_VARIANT, "s", &variant);
        dbus_message_iter_append_basic(&variant, DBUS_TYPE_STRING, &type);
        dbus_message_iter_close_container(&entry, &variant);
        dbus_message_iter_close_container(&options, &entry);
        dbus_message_iter_close_container(&iter, &options);
        reply = dbus_connection_send_with_reply_and_block(bus, message, 10000, NULL);
        if (!reply) fail("WriteValue");
        dbus_message_unref(reply);
        dbus_message_unref(message);
    }
    print_events(count, &before, &before);
}

/// An L2CAP channel: sends or receives so many bytes, 64 KiB at a time.
static void channel(bool sends, long count) {
    static char chunk[65536];
    const char *device = SENSOR;
    dbus_uint16_t psm = sends ? 128 : 129;
    dbus_bool_t encrypted = FALSE;
    int socket = -1;
    memset(chunk, 0x5A, sizeof chunk);  // pages of its own: untouched pages share one page of zeros
    do_call(SENSOR, "org.bluez.Device1", "Connect");
    DBusMessage *message = dbus_message_new_method_call("org.bluez", "/org/bluez/hci0", "org.bluezkit.Simulator.L2CAP1", "Connect");
    dbus_message_append_args(message, DBUS_TYPE_OBJECT_PATH, &device, DBUS_TYPE_UINT16, &psm, DBUS_TYPE_BOOLEAN, &encrypted,
                             DBUS_TYPE_INVALID);
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, message, 10000, NULL);
    if (!reply || !dbus_message_get_args(reply, NULL, DBUS_TYPE_UNIX_FD, &socket, DBUS_TYPE_INVALID)) fail("no channel");
    measurement_t before = measure();
    for (long done = 0; done < count;) {
        struct pollfd ready = {.fd = socket, .events = sends ? POLLOUT : POLLIN};
        size_t most = count - done < (long)sizeof chunk ? (size_t)(count - done) : sizeof chunk;
        ssize_t moved = sends ? send(socket, chunk, most, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(socket, chunk, most, MSG_DONTWAIT);
        if (moved > 0) done += moved;
        else if (moved < 0 && errno == EAGAIN) poll(&ready, 1, -1);
        else fail("the channel is closed");
    }
    print_events(count >> 20, &before, &before);
}

/// Looks at every value.
static long walk(DBusMessageIter *iter) {
    long count = 0;
    for (int type; (type = dbus_message_iter_get_arg_type(iter)) != DBUS_TYPE_INVALID; dbus_message_iter_next(iter)) {
        DBusMessageIter inner;
        if (dbus_type_is_basic(type)) {
            DBusBasicValue value;
            dbus_message_iter_get_basic(iter, &value);
            count++;
            continue;
        }
        dbus_message_iter_recurse(iter, &inner);
        if (type == DBUS_TYPE_ARRAY && dbus_message_iter_get_element_type(iter) == DBUS_TYPE_BYTE) {
            const unsigned char *bytes;
            int length;
            dbus_message_iter_get_fixed_array(&inner, &bytes, &length);
            count++;
        } else {
            count += walk(&inner);
        }
    }
    return count;
}

static void scan(void) {
    long events[3] = {0};
    measurement_t at[3];
    int marks = 0;
    add_match("type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',"
              "arg0='org.bluez.Device1'");
    do_call("/org/bluez/hci0", "org.bluez.Adapter1", "StartDiscovery");
    while (marks < 3) {
        DBusMessageIter iter;
        DBusMessage *message = next_message();
        const char *path = "";
        dbus_message_iter_init(message, &iter);
        if (dbus_message_has_member(message, "InterfacesAdded")) dbus_message_iter_get_basic(&iter, &path);
        walk(&iter);
        if (!strncmp(path, "/org/bluez/hci0/dev_C0_FF_00_1E_84_8", 36)) {  // the generator's marks
            at[marks++] = measure();
        } else {
            events[marks]++;
        }
        dbus_message_unref(message);
    }
    print_scan(events, at);
}

static bool has_option(char **argv, const char *option) {
    while (*argv && strcmp(*argv, option)) argv++;
    return *argv;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!start()) fail("hci0 is not powered");
    measurement_t powered = measure();
    bool hops = has_option(argv, "hop");
    if (has_option(argv, "latency") && !(latencies = calloc((size_t)atol(argv[2]), sizeof *latencies))) fail("out of memory");
    if (!strcmp(mode, "start")) {
        printf("{\"powered_ns\": %lld, \"cpu_us\": %lld, \"rss_kib\": %ld}\n", powered.time_ns, powered.cpu_us,
               rss_kib());
    } else if (!strcmp(mode, "notify") && argc > 2) {
        notify(atol(argv[2]), hops);
    } else if (!strcmp(mode, "idle")) {
        notify(LONG_MAX, false);
    } else if (!strcmp(mode, "acquire") && argc > 2) {
        acquire_notify(atol(argv[2]), hops);
    } else if (!strcmp(mode, "write") && argc > 3) {
        write_values(atol(argv[2]), (size_t)atol(argv[3]));
    } else if (!strcmp(mode, "write-value") && argc > 3) {
        write_with_response(atol(argv[2]), atoi(argv[3]));
    } else if ((!strcmp(mode, "channel-send") || !strcmp(mode, "channel-receive")) && argc > 2) {
        channel(!strcmp(mode, "channel-send"), atol(argv[2]));
    } else if (!strcmp(mode, "scan")) {
        scan();
    } else {
        fail(USAGE);
    }
}
