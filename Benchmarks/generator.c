// generator: an `org.bluez` for benchmarks, in C on libdbus, so that no client has an advantage by its server.
//
// It shows an adapter hci0, N known devices and one connectable heart-rate sensor. StartNotify starts a stream of
// values (with `go` the first WriteValue does), StartDiscovery a flood of devices, or a report of the sensor; apart from that it answers what
// clients ask. With sockets, AcquireNotify streams the same values. What is written is counted: ReadValue returns how many
// values have come, by WriteValue or AcquireWrite, whose first 4 bytes were their number. There are L2CAP channels: PSM
// 128 reads, PSM 129 sends `bytes`. One process serves one run.
//
// The bus is that of DBUS_SYSTEM_BUS_ADDRESS. Prints "ready" when the name is taken; ends with the bus.
#define _GNU_SOURCE
#include <dbus/dbus.h>

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *const USAGE =
    "usage: generator [OPTION=NUMBER...]\n"
    "  devices=N    devices known from the start (10)\n"
    "  values=N     notifications after StartNotify (0)\n"
    "  size=N       bytes in each, 4 to 512 (20); the first 4 are its number, the next 8 when it\n"
    "               was sent, in nanoseconds of CLOCK_MONOTONIC; little endian\n"
    "  rate=N       notifications per second; 0: as fast as the bus takes them (0)\n"
    "  noise=N      with a rate: reports per second of other devices meanwhile (0)\n"
    "  new=N        new devices after StartDiscovery (0)\n"
    "  updates=N    reports of these devices after that (0)\n"
    "  sockets=1    BlueZ gives sockets (0)\n"
    "  bytes=N      bytes that an L2CAP channel carries (0)\n"
    "  present=1    the sensor's attributes are there before it is connected (0)\n"
    "  delay=N      milliseconds between StartNotify and the first value (100)\n"
    "  more=N       further characteristics that notify, at most 1000: values come from all in turn (0)\n"
    "  go=1         values come after the first WriteValue, from what notifies then (0)\n";

static long devices = 10, values, size = 20, rate, noise, new_devices, updates, present, sockets, bytes, delay = 100,
    more, go;

static const char *const ADAPTER = "/org/bluez/hci0";
static const char *const SENSOR = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01";
static const long FIRST_NEW = 1000000;  // device numbers from here on are met in a scan
enum { PATH_LENGTH = 80, PAUSE_MS = 100, MOST_MORE = 1000 };

static DBusConnection *bus;
static bool is_connected, is_resolved;

// attributes of the sensor ------------------------------------------------------------------------------------

typedef enum { SERVICE, CHARACTERISTIC, DESCRIPTOR } kind_t;

static struct attribute {
    kind_t kind;
    const char *path;  // below the device
    const char *uuid;
    const char *flags[3];
    bool is_notifying;
} attributes[8 + 1 + 2 * MOST_MORE] = {
    {SERVICE, "service000a", "0000180d-0000-1000-8000-00805f9b34fb", {0}, false},
    {CHARACTERISTIC, "service000a/char000b", "00002a37-0000-1000-8000-00805f9b34fb", {"notify"}, false},
    {DESCRIPTOR, "service000a/char000b/desc000d", "00002902-0000-1000-8000-00805f9b34fb", {0}, false},
    {CHARACTERISTIC, "service000a/char000e", "00002a38-0000-1000-8000-00805f9b34fb", {"read"}, false},
    {CHARACTERISTIC, "service000a/char0014", "00002a39-0000-1000-8000-00805f9b34fb", {"write-without-response", "write"}, false},
    {SERVICE, "service0010", "0000180f-0000-1000-8000-00805f9b34fb", {0}, false},
    {CHARACTERISTIC, "service0010/char0011", "00002a19-0000-1000-8000-00805f9b34fb", {"read", "notify"}, false},
    {DESCRIPTOR, "service0010/char0011/desc0013", "00002902-0000-1000-8000-00805f9b34fb", {0}, false},
};
static int attribute_count = 8;
static struct attribute *notifying[1 + MOST_MORE];
static int notifying_count;

static const char *const attribute_interfaces[] = {"org.bluez.GattService1", "org.bluez.GattCharacteristic1",
                                                   "org.bluez.GattDescriptor1"};

static void add_more(void) {
    static char paths[MOST_MORE][2][64];
    if (more) attributes[attribute_count++] =
        (struct attribute){SERVICE, "service1000", "0000fff0-0000-1000-8000-00805f9b34fb", {0}, false};
    for (long i = 0; i < more; i++) {
        long handle = 0x1001 + 3 * i;
        snprintf(paths[i][0], sizeof paths[i][0], "service1000/char%04lx", handle);
        snprintf(paths[i][1], sizeof paths[i][1], "service1000/char%04lx/desc%04lx", handle, handle + 2);
        attributes[attribute_count++] =
            (struct attribute){CHARACTERISTIC, paths[i][0], "0000fff1-0000-1000-8000-00805f9b34fb", {"notify"}, false};
        attributes[attribute_count++] =
            (struct attribute){DESCRIPTOR, paths[i][1], "00002902-0000-1000-8000-00805f9b34fb", {0}, false};
    }
}

static bool can_notify(const struct attribute *attribute) {
    return attribute->flags[0] && !strcmp(attribute->flags[attribute->flags[1] != NULL], "notify");
}

static void attribute_path(const struct attribute *attribute, char path[PATH_LENGTH]) {
    snprintf(path, PATH_LENGTH, "%s/%s", SENSOR, attribute->path);
}

static bool shows_attributes(void) { return present || is_connected; }

static struct attribute *find_attribute(const char *path) {
    char candidate[PATH_LENGTH];
    for (int i = 0; i < attribute_count && shows_attributes(); i++) {
        attribute_path(&attributes[i], candidate);
        if (!strcmp(candidate, path)) return &attributes[i];
    }
    return NULL;
}

// devices -----------------------------------------------------------------------------------------------------

/// The address of device `number`, written with `separator`.
static void address_text(long number, char separator, char text[18]) {
    unsigned long n = (unsigned long)number;
    snprintf(text, 18, "C0%cFF%c%02lX%c%02lX%c%02lX%c%02lX", separator, separator, n >> 24 & 255, separator,
             n >> 16 & 255, separator, n >> 8 & 255, separator, n & 255);
}

static void device_path(long number, char path[PATH_LENGTH]) {
    char address[18];
    address_text(number, '_', address);
    snprintf(path, PATH_LENGTH, "%s/dev_%s", ADAPTER, address);
}

// properties --------------------------------------------------------------------------------------------------

/// Where properties go: all into an a{sv}, or only one, as a variant.
typedef struct {
    DBusMessageIter *iter;
    const char *only;  // NULL: all
    bool found;
} sink_t;

typedef struct {
    DBusMessageIter entry, variant, array;
} frame_t;

static bool begin_property(sink_t *sink, const char *key, const char *signature, frame_t *frame) {
    if (sink->only && strcmp(sink->only, key)) return false;
    sink->found = true;
    DBusMessageIter *parent = sink->iter;
    if (!sink->only) {
        dbus_message_iter_open_container(sink->iter, DBUS_TYPE_DICT_ENTRY, NULL, &frame->entry);
        dbus_message_iter_append_basic(&frame->entry, DBUS_TYPE_STRING, &key);
        parent = &frame->entry;
    }
    dbus_message_iter_open_container(parent, DBUS_TYPE_VARIANT, signature, &frame->variant);
    return true;
}

static void end_property(sink_t *sink, frame_t *frame) {
    dbus_message_iter_close_container(sink->only ? sink->iter : &frame->entry, &frame->variant);
    if (!sink->only) dbus_message_iter_close_container(sink->iter, &frame->entry);
}

static void add_basic(sink_t *sink, const char *key, int type, const void *value) {
    const char signature[2] = {(char)type, 0};
    frame_t frame;
    if (!begin_property(sink, key, signature, &frame)) return;
    dbus_message_iter_append_basic(&frame.variant, type, value);
    end_property(sink, &frame);
}

static void add_text(sink_t *sink, const char *key, const char *text) { add_basic(sink, key, DBUS_TYPE_STRING, &text); }
static void add_path(sink_t *sink, const char *key, const char *path) {
    add_basic(sink, key, DBUS_TYPE_OBJECT_PATH, &path);
}
static void add_bool(sink_t *sink, const char *key, bool value) {
    dbus_bool_t flag = value;
    add_basic(sink, key, DBUS_TYPE_BOOLEAN, &flag);
}

static void add_texts(sink_t *sink, const char *key, const char *const *texts, int count) {
    frame_t frame;
    if (!begin_property(sink, key, "as", &frame)) return;
    dbus_message_iter_open_container(&frame.variant, DBUS_TYPE_ARRAY, "s", &frame.array);
    for (int i = 0; i < count; i++) dbus_message_iter_append_basic(&frame.array, DBUS_TYPE_STRING, &texts[i]);
    dbus_message_iter_close_container(&frame.variant, &frame.array);
    end_property(sink, &frame);
}

static void append_bytes(DBusMessageIter *iter, const uint8_t *bytes, long count) {
    DBusMessageIter array;
    dbus_message_iter_open_container(iter, DBUS_TYPE_ARRAY, "y", &array);
    dbus_message_iter_append_fixed_array(&array, DBUS_TYPE_BYTE, &bytes, (int)count);
    dbus_message_iter_close_container(iter, &array);
}

static void add_bytes(sink_t *sink, const char *key, const uint8_t *bytes, long count) {
    frame_t frame;
    if (!begin_property(sink, key, "ay", &frame)) return;
    append_bytes(&frame.variant, bytes, count);
    end_property(sink, &frame);
}

/// a{qv} with one entry: the company for tests, and 16 bytes that differ from report to report.
static void add_manufacturer_data(sink_t *sink, long number, long report) {
    frame_t frame;
    DBusMessageIter entry, variant;
    dbus_uint16_t company = 0xFFFF;
    uint8_t payload[16] = {0};
    memcpy(payload, &(uint32_t){(uint32_t)number}, 4);
    memcpy(payload + 4, &(uint32_t){(uint32_t)report}, 4);
    if (!begin_property(sink, "ManufacturerData", "a{qv}", &frame)) return;
    dbus_message_iter_open_container(&frame.variant, DBUS_TYPE_ARRAY, "{qv}", &frame.array);
    dbus_message_iter_open_container(&frame.array, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    dbus_message_iter_append_basic(&entry, DBUS_TYPE_UINT16, &company);
    dbus_message_iter_open_container(&entry, DBUS_TYPE_VARIANT, "ay", &variant);
    append_bytes(&variant, payload, sizeof payload);
    dbus_message_iter_close_container(&entry, &variant);
    dbus_message_iter_close_container(&frame.array, &entry);
    dbus_message_iter_close_container(&frame.variant, &frame.array);
    end_property(sink, &frame);
}

static void adapter_properties(sink_t *sink) {
    static const char *const uuids[] = {"00001800-0000-1000-8000-00805f9b34fb", "00001801-0000-1000-8000-00805f9b34fb"};
    static const char *const roles[] = {"central", "peripheral"};
    dbus_uint32_t class = 0;
    add_text(sink, "Address", "00:11:22:33:44:55");
    add_text(sink, "AddressType", "public");
    add_text(sink, "Name", "benchmark");
    add_text(sink, "Alias", "benchmark");
    add_basic(sink, "Class", DBUS_TYPE_UINT32, &class);
    add_bool(sink, "Powered", true);
    if (bytes) add_bool(sink, "SimulatedSockets", true);
    add_text(sink, "PowerState", "on");
    add_bool(sink, "Discoverable", false);
    add_bool(sink, "Pairable", true);
    add_bool(sink, "Discovering", false);
    add_texts(sink, "UUIDs", uuids, 2);
    add_text(sink, "Modalias", "usb:v1D6Bp0246d0557");
    add_texts(sink, "Roles", roles, 2);
}

/// - name: NULL for a device that tells none.
static void device_properties(sink_t *sink, const char *address, const char *name, bool connected, bool resolved) {
    static const char *const uuids[] = {"0000180d-0000-1000-8000-00805f9b34fb", "0000180f-0000-1000-8000-00805f9b34fb"};
    add_text(sink, "Address", address);
    add_text(sink, "AddressType", "random");
    if (name) add_text(sink, "Name", name);
    add_text(sink, "Alias", name ? name : address);
    add_bool(sink, "Paired", false);
    add_bool(sink, "Bonded", false);
    add_bool(sink, "Trusted", false);
    add_bool(sink, "Blocked", false);
    add_bool(sink, "LegacyPairing", false);
    add_bool(sink, "Connected", connected);
    add_texts(sink, "UUIDs", uuids, 2);
    add_path(sink, "Adapter", ADAPTER);
    add_bool(sink, "ServicesResolved", resolved);
}

static void sensor_properties(sink_t *sink) {
    device_properties(sink, "F0:F1:F2:00:00:01", "Heart rate", is_connected, is_resolved);
}

static void add_report(sink_t *sink, long number, long report) {
    dbus_int16_t rssi = (dbus_int16_t)(-40 - (number + report) % 50);
    add_basic(sink, "RSSI", DBUS_TYPE_INT16, &rssi);
    add_manufacturer_data(sink, number, report);
}

static void numbered_properties(sink_t *sink, long number) {
    char address[18], name[32];
    address_text(number, ':', address);
    snprintf(name, sizeof name, "Device %ld", number);
    device_properties(sink, address, name, false, false);
    if (number >= FIRST_NEW) add_report(sink, number, 0);
}

static void attribute_properties(sink_t *sink, const struct attribute *attribute) {
    static const uint8_t value[1] = {100};
    char path[PATH_LENGTH];
    attribute_path(attribute, path);
    *strrchr(path, '/') = 0;  // the parent
    add_text(sink, "UUID", attribute->uuid);
    if (attribute->kind == SERVICE) {
        frame_t frame;
        add_path(sink, "Device", path);
        add_bool(sink, "Primary", true);
        if (!begin_property(sink, "Includes", "ao", &frame)) return;
        dbus_message_iter_open_container(&frame.variant, DBUS_TYPE_ARRAY, "o", &frame.array);
        dbus_message_iter_close_container(&frame.variant, &frame.array);
        end_property(sink, &frame);
    } else if (attribute->kind == CHARACTERISTIC) {
        dbus_uint16_t mtu = 517;
        add_path(sink, "Service", path);
        add_bytes(sink, "Value", value, 0);
        if (can_notify(attribute)) add_bool(sink, "Notifying", attribute->is_notifying);
        add_texts(sink, "Flags", attribute->flags, attribute->flags[1] ? 2 : 1);
        add_basic(sink, "MTU", DBUS_TYPE_UINT16, &mtu);
    } else {
        add_path(sink, "Characteristic", path);
        add_bytes(sink, "Value", value, 0);
    }
}

// objects -----------------------------------------------------------------------------------------------------

/// Appends an object's `a{sa{sv}}`, with the two interfaces without properties that BlueZ lists for each object.
static void append_interfaces(DBusMessageIter *iter, const char *interface, void (*properties)(sink_t *, const void *),
                              const void *object) {
    const char *const names[] = {"org.freedesktop.DBus.Introspectable", interface, "org.freedesktop.DBus.Properties"};
    DBusMessageIter interfaces, entry, dictionary;
    dbus_message_iter_open_container(iter, DBUS_TYPE_ARRAY, "{sa{sv}}", &interfaces);
    for (int i = 0; i < 3; i++) {
        dbus_message_iter_open_container(&interfaces, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
        dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &names[i]);
        dbus_message_iter_open_container(&entry, DBUS_TYPE_ARRAY, "{sv}", &dictionary);
        if (i == 1) properties(&(sink_t){.iter = &dictionary}, object);
        dbus_message_iter_close_container(&entry, &dictionary);
        dbus_message_iter_close_container(&interfaces, &entry);
    }
    dbus_message_iter_close_container(iter, &interfaces);
}

static void of_adapter(sink_t *sink, const void *object) { (void)object, adapter_properties(sink); }
static void of_sensor(sink_t *sink, const void *object) { (void)object, sensor_properties(sink); }
static void of_number(sink_t *sink, const void *object) { numbered_properties(sink, *(const long *)object); }
static void of_attribute(sink_t *sink, const void *object) { attribute_properties(sink, object); }

/// A device whose name tells where a part of a scan ends.
static void of_mark(sink_t *sink, const void *object) {
    char address[18], name[32];
    long mark = *(const long *)object;
    address_text(2 * FIRST_NEW + mark, ':', address);
    snprintf(name, sizeof name, "mark %ld", mark);
    device_properties(sink, address, name, false, false);
    add_report(sink, mark, 0);
}

static void append_managed(DBusMessageIter *objects, const char *path, const char *interface,
                           void (*properties)(sink_t *, const void *), const void *object) {
    DBusMessageIter entry;
    dbus_message_iter_open_container(objects, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    dbus_message_iter_append_basic(&entry, DBUS_TYPE_OBJECT_PATH, &path);
    append_interfaces(&entry, interface, properties, object);
    dbus_message_iter_close_container(objects, &entry);
}

static void append_all_objects(DBusMessageIter *iter) {
    char path[PATH_LENGTH];
    DBusMessageIter objects;
    dbus_message_iter_open_container(iter, DBUS_TYPE_ARRAY, "{oa{sa{sv}}}", &objects);
    append_managed(&objects, ADAPTER, "org.bluez.Adapter1", of_adapter, NULL);
    append_managed(&objects, SENSOR, "org.bluez.Device1", of_sensor, NULL);
    for (int i = 0; i < attribute_count && shows_attributes(); i++) {
        attribute_path(&attributes[i], path);
        append_managed(&objects, path, attribute_interfaces[attributes[i].kind], of_attribute, &attributes[i]);
    }
    for (long number = 0; number < devices; number++) {
        device_path(number, path);
        append_managed(&objects, path, "org.bluez.Device1", of_number, &number);
    }
    dbus_message_iter_close_container(iter, &objects);
}

/// The number of the known device at `path`; -1: none.
static long find_device(const char *path) {
    unsigned a, b, c, d;
    int length = 0;
    if (sscanf(path, "/org/bluez/hci0/dev_C0_FF_%2x_%2x_%2x_%2x%n", &a, &b, &c, &d, &length) != 4) return -1;
    if (path[length]) return -1;
    long number = (long)a << 24 | (long)b << 16 | (long)c << 8 | (long)d;
    return number < devices || (number >= FIRST_NEW && number < FIRST_NEW + new_devices) ? number : -1;
}

/// - Returns: Whether there is such an object with such an interface.
static bool append_properties(sink_t *sink, const char *path, const char *interface) {
    const struct attribute *attribute = find_attribute(path);
    long number = find_device(path);
    if (attribute && !strcmp(interface, attribute_interfaces[attribute->kind])) attribute_properties(sink, attribute);
    else if (!strcmp(path, ADAPTER) && !strcmp(interface, "org.bluez.Adapter1")) adapter_properties(sink);
    else if (!strcmp(path, SENSOR) && !strcmp(interface, "org.bluez.Device1")) sensor_properties(sink);
    else if (number >= 0 && !strcmp(interface, "org.bluez.Device1")) numbered_properties(sink, number);
    else return false;
    return true;
}

// sending -----------------------------------------------------------------------------------------------------

static void send_message(DBusMessage *message) {
    if (!dbus_connection_send(bus, message, NULL)) exit(1);
    dbus_message_unref(message);
}

/// Begins a PropertiesChanged; `end_change` sends it.
typedef struct {
    DBusMessage *message;
    DBusMessageIter arguments, dictionary;
    sink_t sink;
} change_t;

static void begin_change(change_t *change, const char *path, const char *interface) {
    change->message = dbus_message_new_signal(path, "org.freedesktop.DBus.Properties", "PropertiesChanged");
    dbus_message_iter_init_append(change->message, &change->arguments);
    dbus_message_iter_append_basic(&change->arguments, DBUS_TYPE_STRING, &interface);
    dbus_message_iter_open_container(&change->arguments, DBUS_TYPE_ARRAY, "{sv}", &change->dictionary);
    change->sink = (sink_t){.iter = &change->dictionary};
}

static void end_change(change_t *change) {
    DBusMessageIter invalidated;
    dbus_message_iter_close_container(&change->arguments, &change->dictionary);
    dbus_message_iter_open_container(&change->arguments, DBUS_TYPE_ARRAY, "s", &invalidated);
    dbus_message_iter_close_container(&change->arguments, &invalidated);
    send_message(change->message);
}

static void change_bool(const char *path, const char *interface, const char *key, bool value) {
    change_t change;
    begin_change(&change, path, interface);
    add_bool(&change.sink, key, value);
    end_change(&change);
}

static void announce(const char *path, const char *interface, void (*properties)(sink_t *, const void *),
                     const void *object) {
    DBusMessageIter iter;
    DBusMessage *message = dbus_message_new_signal("/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded");
    dbus_message_iter_init_append(message, &iter);
    dbus_message_iter_append_basic(&iter, DBUS_TYPE_OBJECT_PATH, &path);
    append_interfaces(&iter, interface, properties, object);
    send_message(message);
}

static void report(long number, long count) {
    char path[PATH_LENGTH];
    change_t change;
    device_path(number, path);
    begin_change(&change, path, "org.bluez.Device1");
    add_report(&change.sink, number, count);
    end_change(&change);
}

// scripts -----------------------------------------------------------------------------------------------------

static void pause_ms(long ms) {
    dbus_connection_flush(bus);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void sleep_until(const struct timespec *start, double seconds) {
    struct timespec until = *start;
    long ns = until.tv_nsec + (long)((seconds - (double)(long)seconds) * 1e9);
    until.tv_sec += (time_t)seconds + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/// Its number, and when it was sent.
static const uint8_t *value(long number) {
    static uint8_t bytes[512];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    memcpy(bytes, &(uint32_t){(uint32_t)number}, 4);
    memcpy(bytes + 4, &(uint64_t){(uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec}, 8);
    return bytes;
}

static void send_value(const char *path, long number) {
    change_t change;
    begin_change(&change, path, "org.bluez.GattCharacteristic1");
    add_bytes(&change.sink, "Value", value(number), size);
    end_change(&change);
}

static int notify_socket = -1, write_socket = -1;
static uint32_t packets_in_order;

/// bluetoothd drops what a full socket does not take; at full speed this waits, so that each client gets all.
static void send_packet(long number) {
    const uint8_t *bytes = value(number);
    while (send(notify_socket, bytes, (size_t)size, MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN || rate) return;
        poll(&(struct pollfd){.fd = notify_socket, .events = POLLOUT}, 1, -1);
    }
}

static void read_packets(void) {
    enum { BATCH = 64 };
    static uint8_t bytes[BATCH][512];
    static struct iovec parts[BATCH];
    static struct mmsghdr headers[BATCH];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){.iov_base = bytes[i], .iov_len = sizeof bytes[i]};
        headers[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    int count = recvmmsg(write_socket, headers, BATCH, MSG_DONTWAIT, NULL);
    for (int i = 0; i < count; i++) {
        if (headers[i].msg_len == 0) count = 0;
        else if (!memcmp(bytes[i], &packets_in_order, 4)) packets_in_order++;
    }
    if (count > 0 || (count < 0 && errno == EAGAIN)) return;
    close(write_socket);
    write_socket = -1;
}

static void stream_values(void) {
    static char paths[1 + MOST_MORE][PATH_LENGTH];
    struct timespec start;
    long reports = 0;
    if (!values) return;
    for (int i = 0; i < notifying_count; i++) attribute_path(notifying[i], paths[i]);
    pause_ms(delay);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < values; i++) {
        if (rate) {
            double due = (double)i / (double)rate;
            // Reports of others come evenly, and never together with a value.
            for (double at; noise && (at = ((double)reports + 0.5) / (double)noise) < due; reports++) {
                sleep_until(&start, at);
                report(reports % devices, reports);
                dbus_connection_flush(bus);
            }
            sleep_until(&start, due);
        }
        if (notify_socket >= 0) send_packet(i);
        else send_value(paths[i % notifying_count], i);
        if (rate || i % 32 == 31) dbus_connection_flush(bus);
    }
    dbus_connection_flush(bus);
}

static void mark(long number) {
    char path[PATH_LENGTH];
    pause_ms(PAUSE_MS);
    device_path(2 * FIRST_NEW + number, path);
    announce(path, "org.bluez.Device1", of_mark, &number);
    pause_ms(PAUSE_MS);
}

static void flood(void) {
    char path[PATH_LENGTH];
    if (!new_devices) {  // the sensor only; a client may not listen before it has the answer
        change_t change;
        pause_ms(10);
        begin_change(&change, SENSOR, "org.bluez.Device1");
        add_report(&change.sink, 0, 0);
        return end_change(&change);
    }
    mark(0);
    for (long number = FIRST_NEW; number < FIRST_NEW + new_devices; number++) {
        device_path(number, path);
        announce(path, "org.bluez.Device1", of_number, &number);
        if (number % 32 == 31) dbus_connection_flush(bus);
    }
    mark(1);
    for (long i = 0; i < updates; i++) {
        report(FIRST_NEW + i % new_devices, 1 + i);
        if (i % 32 == 31) dbus_connection_flush(bus);
    }
    mark(2);
}

// answering ---------------------------------------------------------------------------------------------------

/// Names of the objects right below `path`, as BlueZ's own D-Bus library writes them.
static bool introspect(const char *path, FILE *out) {
    char child[PATH_LENGTH];
    size_t length = strlen(path);
    bool is_known = true;
    fputs(DBUS_INTROSPECT_1_0_XML_DOCTYPE_DECL_NODE, out);
    fputs("<node><interface name=\"org.freedesktop.DBus.Introspectable\"><method name=\"Introspect\">"
          "<arg name=\"xml\" type=\"s\" direction=\"out\"/></method></interface>", out);
    if (!strcmp(path, "/")) {
        fputs("<node name=\"org\"/>", out);
    } else if (!strcmp(path, "/org")) {
        fputs("<node name=\"bluez\"/>", out);
    } else if (!strcmp(path, "/org/bluez")) {
        fputs("<node name=\"hci0\"/>", out);
    } else if (!strcmp(path, ADAPTER)) {
        fprintf(out, "<node name=\"%s\"/>", strrchr(SENSOR, '/') + 1);
        for (long number = 0; number < devices; number++) {
            device_path(number, child);
            fprintf(out, "<node name=\"%s\"/>", strrchr(child, '/') + 1);
        }
    } else if (!strcmp(path, SENSOR) || find_attribute(path)) {
        for (int i = 0; i < attribute_count && shows_attributes(); i++) {
            attribute_path(&attributes[i], child);
            if (strncmp(child, path, length) || child[length] != '/' || strchr(child + length + 1, '/')) continue;
            fprintf(out, "<node name=\"%s\"/>", child + length + 1);
        }
    } else {
        is_known = find_device(path) >= 0;
    }
    fputs("</node>", out);
    return is_known;
}

static void connect_sensor(void) {
    char path[PATH_LENGTH];
    if (is_connected) return;
    is_connected = true;
    change_bool(SENSOR, "org.bluez.Device1", "Connected", true);
    for (int i = 0; i < attribute_count && !present; i++) {
        attribute_path(&attributes[i], path);
        announce(path, attribute_interfaces[attributes[i].kind], of_attribute, &attributes[i]);
    }
}

static void refuse(DBusMessage *call, const char *name) {
    send_message(dbus_message_new_error_printf(call, name, "%s.%s of %s", dbus_message_get_interface(call),
                                               dbus_message_get_member(call), dbus_message_get_path(call)));
}

/// One end of a pair of sockets; the other one goes with the reply.
static int add_socket(DBusMessageIter *iter) {
    int ends[2];
    dbus_uint16_t mtu = 517;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)) exit(1);
    dbus_message_iter_append_basic(iter, DBUS_TYPE_UNIX_FD, &ends[1]);
    dbus_message_iter_append_basic(iter, DBUS_TYPE_UINT16, &mtu);
    close(ends[1]);
    return ends[0];
}

/// The other end of a channel, in a process of its own: reads all, or sends all, 64 KiB at a time.
static int open_channel(DBusMessage *call) {
    static char chunk[65536];
    const char *device;
    dbus_uint16_t psm;
    dbus_bool_t encrypted;
    int ends[2];
    if (!dbus_message_get_args(call, NULL, DBUS_TYPE_OBJECT_PATH, &device, DBUS_TYPE_UINT16, &psm, DBUS_TYPE_BOOLEAN,
                               &encrypted, DBUS_TYPE_INVALID) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return -1;
    if (fork() == 0) {
        close(ends[1]);
        if (psm == 128) while (read(ends[0], chunk, sizeof chunk) > 0) {}
        else for (long left = bytes; left > 0;) {
            ssize_t count = write(ends[0], chunk, left < (long)sizeof chunk ? (size_t)left : sizeof chunk);
            if (count <= 0) break;
            left -= count;
        }
        _exit(0);
    }
    close(ends[0]);
    return ends[1];
}

static void answer(DBusMessage *call) {
    const char *path = dbus_message_get_path(call), *member = dbus_message_get_member(call);
    const char *interface = "", *property = NULL;
    struct attribute *attribute = find_attribute(path);
    bool is_sensor = !strcmp(path, SENSOR), is_adapter = !strcmp(path, ADAPTER);
    DBusMessage *reply = dbus_message_new_method_return(call);
    DBusMessageIter iter, dictionary;
    dbus_message_iter_init_append(reply, &iter);

    if (!strcmp(member, "Introspect")) {
        char *xml = NULL;
        size_t length;
        FILE *out = open_memstream(&xml, &length);
        bool is_known = introspect(path, out);
        fclose(out);
        dbus_message_iter_append_basic(&iter, DBUS_TYPE_STRING, &xml);
        free(xml);
        if (!is_known) return refuse(call, DBUS_ERROR_UNKNOWN_OBJECT);
    } else if (!strcmp(member, "GetManagedObjects") && !strcmp(path, "/")) {
        append_all_objects(&iter);
    } else if (!strcmp(member, "Get") &&
               dbus_message_get_args(call, NULL, DBUS_TYPE_STRING, &interface, DBUS_TYPE_STRING, &property,
                                     DBUS_TYPE_INVALID)) {
        sink_t sink = {.iter = &iter, .only = property};
        if (!append_properties(&sink, path, interface)) return refuse(call, DBUS_ERROR_UNKNOWN_OBJECT);
        if (!sink.found) return refuse(call, DBUS_ERROR_INVALID_ARGS);
    } else if (!strcmp(member, "GetAll") &&
               dbus_message_get_args(call, NULL, DBUS_TYPE_STRING, &interface, DBUS_TYPE_INVALID)) {
        dbus_message_iter_open_container(&iter, DBUS_TYPE_ARRAY, "{sv}", &dictionary);
        bool is_known = append_properties(&(sink_t){.iter = &dictionary}, path, interface);
        dbus_message_iter_close_container(&iter, &dictionary);
        if (!is_known) return refuse(call, DBUS_ERROR_UNKNOWN_OBJECT);
    } else if (is_sensor && !strcmp(member, "Connect")) {
        connect_sensor();
        send_message(reply);
        is_resolved = true;
        return change_bool(SENSOR, "org.bluez.Device1", "ServicesResolved", true);
    } else if (is_sensor && !strcmp(member, "Disconnect")) {
        is_connected = is_resolved = false;
        change_bool(SENSOR, "org.bluez.Device1", "ServicesResolved", false);
        change_bool(SENSOR, "org.bluez.Device1", "Connected", false);
    } else if (is_adapter && !strcmp(member, "Connect")) {
        int end = open_channel(call);
        if (end < 0) return refuse(call, DBUS_ERROR_INVALID_ARGS);
        dbus_message_iter_append_basic(&iter, DBUS_TYPE_UNIX_FD, &end);
        close(end);
    } else if (is_adapter && !strcmp(member, "StartDiscovery")) {
        send_message(reply);
        return flood();
    } else if (is_adapter && (!strcmp(member, "SetDiscoveryFilter") || !strcmp(member, "StopDiscovery"))) {
    } else if (attribute && !strcmp(member, "StartNotify")) {
        if (!attribute->is_notifying) notifying[notifying_count++] = attribute;
        attribute->is_notifying = true;
        change_bool(path, attribute_interfaces[CHARACTERISTIC], "Notifying", true);
        send_message(reply);
        if (!go) stream_values();
        return;
    } else if (attribute && sockets && !strcmp(member, "AcquireNotify")) {
        notify_socket = add_socket(&iter);
        change_bool(path, attribute_interfaces[CHARACTERISTIC], "NotifyAcquired", true);
        send_message(reply);
        return stream_values();
    } else if (attribute && sockets && !strcmp(member, "AcquireWrite")) {
        write_socket = add_socket(&iter);
        change_bool(path, attribute_interfaces[CHARACTERISTIC], "WriteAcquired", true);
    } else if (attribute && !strcmp(member, "WriteValue")) {
        const uint8_t *value;
        int count = 0;
        DBusMessageIter argument;
        dbus_message_iter_init(call, &argument);
        dbus_message_iter_recurse(&argument, &dictionary);
        dbus_message_iter_get_fixed_array(&dictionary, &value, &count);
        if (count >= 4 && !memcmp(value, &packets_in_order, 4)) packets_in_order++;
        send_message(reply);
        if (go && go-- && notifying_count) stream_values();
        return;
    } else if ((attribute && !strcmp(member, "StopNotify")) || !strcmp(path, "/org/bluez")) {  // agents as well
    } else if (attribute && !strcmp(member, "ReadValue")) {
        while (write_socket >= 0 && poll(&(struct pollfd){.fd = write_socket, .events = POLLIN}, 1, 0) > 0) read_packets();
        append_bytes(&iter, (const uint8_t *)&packets_in_order, sizeof packets_in_order);
    } else {
        return refuse(call, DBUS_ERROR_UNKNOWN_METHOD);
    }
    send_message(reply);
}

// main --------------------------------------------------------------------------------------------------------

static void parse(int argc, char **argv) {
    const struct { const char *name; long *value; } options[] = {
        {"devices", &devices}, {"values", &values}, {"size", &size}, {"rate", &rate}, {"noise", &noise},
        {"new", &new_devices}, {"updates", &updates}, {"present", &present}, {"sockets", &sockets}, {"bytes", &bytes},
        {"delay", &delay}, {"more", &more}, {"go", &go},
    };
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        size_t k = 0, count = sizeof options / sizeof *options;
        while (value && k < count && (strlen(options[k].name) != (size_t)(value - argv[i]) ||
                                      strncmp(argv[i], options[k].name, (size_t)(value - argv[i])))) k++;
        if (!value || k == count) {
            fputs(USAGE, stderr);
            exit(2);
        }
        *options[k].value = atol(value + 1);
    }
    if (size < 4 || size > 512 || devices < 1 || (updates && !new_devices) || more < 0 || more > MOST_MORE) {
        fputs(USAGE, stderr);
        exit(2);
    }
}

int main(int argc, char **argv) {
    DBusError error = DBUS_ERROR_INIT;
    parse(argc, argv);
    add_more();
    bus = dbus_bus_get_private(DBUS_BUS_SYSTEM, &error);
    if (!bus || dbus_bus_request_name(bus, "org.bluez", DBUS_NAME_FLAG_DO_NOT_QUEUE, &error) !=
                    DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER) {
        fprintf(stderr, "generator: %s\n", error.message ? error.message : "org.bluez is taken");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    int bus_socket = -1;
    dbus_connection_get_unix_fd(bus, &bus_socket);
    while (dbus_connection_read_write(bus, write_socket < 0 ? -1 : 0)) {
        if (write_socket >= 0) {
            struct pollfd ready[] = {{.fd = bus_socket, .events = POLLIN}, {.fd = write_socket, .events = POLLIN}};
            dbus_connection_flush(bus);
            poll(ready, 2, -1);
            if (ready[1].revents) read_packets();
        }
        for (DBusMessage *message; (message = dbus_connection_pop_message(bus)); dbus_message_unref(message))
            if (dbus_message_get_type(message) == DBUS_MESSAGE_TYPE_METHOD_CALL) answer(message);
    }
}
