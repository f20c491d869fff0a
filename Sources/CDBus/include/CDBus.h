// CDBus: what Swift needs from libdbus-1 and cannot use directly: an event loop for one connection, appends that
// validate first (libdbus aborts the process on an invalid path, name or UTF-8), and constants that are macros. And the
// receive side, which is our own: libdbus reads 2 KiB at a time, and allocates and copies each message. No globals, no
// logging, no policy. Functions return 0 or -errno.
#ifndef CDBUS_H
#define CDBUS_H

#include <dbus/dbus.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

// constants ---------------------------------------------------------------------------------------------------

// libdbus' type codes, which are macros with casts that Swift does not import.
static const int CDBUS_TYPE_INVALID = DBUS_TYPE_INVALID;
static const int CDBUS_TYPE_BYTE = DBUS_TYPE_BYTE;
static const int CDBUS_TYPE_BOOLEAN = DBUS_TYPE_BOOLEAN;
static const int CDBUS_TYPE_INT16 = DBUS_TYPE_INT16;
static const int CDBUS_TYPE_UINT16 = DBUS_TYPE_UINT16;
static const int CDBUS_TYPE_INT32 = DBUS_TYPE_INT32;
static const int CDBUS_TYPE_UINT32 = DBUS_TYPE_UINT32;
static const int CDBUS_TYPE_INT64 = DBUS_TYPE_INT64;
static const int CDBUS_TYPE_UINT64 = DBUS_TYPE_UINT64;
static const int CDBUS_TYPE_DOUBLE = DBUS_TYPE_DOUBLE;
static const int CDBUS_TYPE_STRING = DBUS_TYPE_STRING;
static const int CDBUS_TYPE_OBJECT_PATH = DBUS_TYPE_OBJECT_PATH;
static const int CDBUS_TYPE_SIGNATURE = DBUS_TYPE_SIGNATURE;
static const int CDBUS_TYPE_UNIX_FD = DBUS_TYPE_UNIX_FD;
static const int CDBUS_TYPE_ARRAY = DBUS_TYPE_ARRAY;
static const int CDBUS_TYPE_VARIANT = DBUS_TYPE_VARIANT;
static const int CDBUS_TYPE_STRUCT = DBUS_TYPE_STRUCT;
static const int CDBUS_TYPE_DICT_ENTRY = DBUS_TYPE_DICT_ENTRY;

// connection.c ------------------------------------------------------------------------------------------------

/// An error of libdbus, copied so that it need not be freed. Empty strings: no error.
typedef struct {
    char name[256];
    char message[512];
} cdbus_error_t;

/// Opens a private connection to `address` (any address that libdbus accepts). Authentication continues in the
/// background; nothing has been sent yet. The process does not exit when the bus is lost, unlike libdbus' default.
/// Returns NULL and fills `error` on failure. Close it with `cdbus_connection_close`.
DBusConnection *_Nullable cdbus_connection_open(const char *address, cdbus_error_t *error);

/// Closes the connection and drops the last reference. No callback follows.
void cdbus_connection_close(DBusConnection *connection);

// loop.c ------------------------------------------------------------------------------------------------------

/// Waits for events of one connection, or of other descriptors alone. Several threads may call `wait`: one of them at a time
/// leads, which is the one that waits for descriptors, and to which `wait` returns. It handles what is ready, and then calls
/// `wait` again as the one that leads, or lets another one lead by `release` or `pause`. All else is for the owner of the loop,
/// on one thread at a time.
typedef struct cdbus_loop cdbus_loop_t;

/// So many descriptors at most are found ready at once.
enum { CDBUS_MAX_READY = 16 };

cdbus_loop_t *_Nullable cdbus_loop_new(void);
void cdbus_loop_free(cdbus_loop_t *loop);

/// Adds the connection's watches to the loop. -ENOMEM if libdbus has no memory.
int cdbus_loop_attach(cdbus_loop_t *loop, DBusConnection *connection);

/// Removes them. Call it before the connection is closed.
void cdbus_loop_detach(cdbus_loop_t *loop, DBusConnection *connection);

/// Blocks until the calling thread leads, and something is ready. Any thread; never calls libdbus.
/// - Parameter leads: Whether it led before, and has not let another one lead.
/// - Returns: false after `end`.
bool cdbus_loop_wait(cdbus_loop_t *loop, bool leads);

/// Lets another thread lead, as soon as something is ready. Any thread, if it leads.
void cdbus_loop_release(cdbus_loop_t *loop);

/// The same, but not before `nanoseconds` have passed or `resume` is called.
void cdbus_loop_pause(cdbus_loop_t *loop, uint64_t nanoseconds);

/// Ends a pause, if there is one.
void cdbus_loop_resume(cdbus_loop_t *loop);

/// Ends every `wait`, now and later. Any thread.
void cdbus_loop_end(const cdbus_loop_t *loop);

/// Lets libdbus authenticate and write for the events that `wait` has found. Once it has authenticated it no longer reads.
/// -errno if there is no descriptor for reading, or no memory for waiting.
int cdbus_loop_handle(cdbus_loop_t *loop);

/// The descriptor to read messages from. -1: not authenticated yet.
int cdbus_loop_input(const cdbus_loop_t *loop);

/// Lets `wait` end as well when `fd` can be read from or is closed, for as long as that is so. Until `unwatch`, before which
/// `fd` must not be closed. A negative errno on failure.
int cdbus_loop_watch(const cdbus_loop_t *loop, int fd);
void cdbus_loop_unwatch(const cdbus_loop_t *loop, int fd);

/// The descriptors that `wait` has found ready; -1: there are no more. One that has been closed since may be among them, and its
/// number may belong to another by now.
int cdbus_loop_ready(const cdbus_loop_t *loop, int index);

// message.c ---------------------------------------------------------------------------------------------------

/// A new method call, or NULL if a name or the path is invalid or there is no memory. `destination` and `interface`
/// may be NULL (peer-to-peer; any interface).
DBusMessage *_Nullable cdbus_message_new_call(const char *_Nullable destination, const char *path,
                                              const char *_Nullable interface, const char *member);

/// A new signal, or NULL as above. `destination` may be NULL: a broadcast.
DBusMessage *_Nullable cdbus_message_new_signal(const char *_Nullable destination, const char *path,
                                                const char *interface, const char *member);

/// A new answer to the call `serial` of `destination` (NULL: peer-to-peer). NULL if there is no memory.
DBusMessage *_Nullable cdbus_message_new_return(uint32_t serial, const char *_Nullable destination);

/// The same with an error, or NULL if the name is not an error name or the message not UTF-8.
DBusMessage *_Nullable cdbus_message_new_error(uint32_t serial, const char *_Nullable destination, const char *name,
                                               const char *message);

/// Appends a string ('s'), object path ('o') or signature ('g'). -EINVAL if it is invalid; -ENOMEM.
int cdbus_iter_append_string(DBusMessageIter *iter, int type, const char *string);

/// Appends a number, boolean or file descriptor of D-Bus type `type` (the descriptor is duplicated).
/// `value` points to it, booleans as `dbus_bool_t`. -EINVAL for another type or a bad descriptor; -ENOMEM.
int cdbus_iter_append_basic(DBusMessageIter *iter, int type, const void *value);

/// Appends `count` bytes as one `ay` value (the payload of GattCharacteristic1.WriteValue).
/// Needed because dbus_message_iter_append_fixed_array expects a pointer to a pointer to the data.
/// -E2BIG above the 64 MiB D-Bus array limit; -ENOMEM, after which the whole message must be discarded.
int cdbus_iter_append_bytes(DBusMessageIter *iter, const uint8_t *_Nullable bytes, size_t count);

/// Opens a container. `contained` is NULL for structs and dict entries. -EINVAL for a bad signature; -ENOMEM.
int cdbus_iter_open(DBusMessageIter *iter, int type, const char *_Nullable contained, DBusMessageIter *sub);
/// Closes it: -ENOMEM means that the whole message must be discarded.
int cdbus_iter_close(DBusMessageIter *iter, DBusMessageIter *sub);

/// Whether a match rule, name or path is valid; libdbus would abort on an invalid one.
int cdbus_is_path(const char *string);
int cdbus_is_interface(const char *string);
int cdbus_is_member(const char *string);
int cdbus_is_bus_name(const char *string);
int cdbus_is_single_signature(const char *string);

// names.c -----------------------------------------------------------------------------------------------------

/// The length of a path or name that arrived; 0: it is not valid. An error's name is an interface's.
size_t cdbus_path_length(const char *text);
size_t cdbus_interface_length(const char *text);
size_t cdbus_member_length(const char *text);
size_t cdbus_bus_name_length(const char *text);

/// Whether it is the signature of any number of values, and has this length.
bool cdbus_is_signature(const char *text, size_t length);

// wire.c ------------------------------------------------------------------------------------------------------

/// So many descriptors come with one read at most (SCM_MAX_FD of the kernel). Buses let 16 (dbus-daemon) or all of them
/// (dbus-broker) pass with a message.
enum { CDBUS_MAX_DESCRIPTORS = 253 };

/// Receives what is there, at most `size` bytes, and the descriptors that came with the last of them (unix(7): a read ends with
/// the data that carries descriptors). `fds` has room for `CDBUS_MAX_DESCRIPTORS`; they are close-on-exec. NULL: none is wanted.
/// `count` is set to their number, `some_lost` to whether there were others: not wanted, or this process may open no more.
/// Returns the number of bytes, 0 at the end of the stream, or -errno: -EAGAIN if nothing is there.
ssize_t cdbus_receive(int fd, void *buffer, size_t size, int *_Nullable fds, int *count, bool *some_lost);

/// A received message, where it was received: nothing of it is copied. The texts are zero-terminated.
typedef struct {
    const uint8_t *_Null_unspecified start;  // never NULL after `cdbus_message_parse`, like `signature`
    uint32_t length, body;  // `body`: where it begins
    uint8_t type, flags;
    bool is_swapped;       // numbers are not in this machine's byte order
    uint32_t serial, reply_serial, descriptors;
    const char *_Nullable path, *_Nullable interface, *_Nullable member, *_Nullable error_name;
    const char *_Nullable destination, *_Nullable sender, *_Null_unspecified signature;
} cdbus_message_t;

/// The length of the message whose first `count` bytes are here; 0: these do not say it yet; -EBADMSG: no message begins
/// so.
ssize_t cdbus_message_length(const uint8_t *bytes, size_t count);

/// Checks a message of `length` bytes, as strictly as libdbus. -EBADMSG if anything is wrong.
int cdbus_message_parse(const uint8_t *start, size_t length, cdbus_message_t *message);

/// Where a reader is in a message that has been checked: before a value, or at the end of a container or of the message.
typedef struct {
    const uint8_t *start;  // of the message; positions and alignments count from here
    const char *type;      // of the next value; in an array, of each element
    uint32_t position, end;  // `end`: of an array
    bool is_array, is_swapped;
} cdbus_reader_t;

static inline bool cdbus_is_swapped(const uint8_t *message) {
    return (message[0] == 'B') != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

static inline uint32_t cdbus_load32(const void *bytes, bool is_swapped) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return is_swapped ? __builtin_bswap32(value) : value;
}

/// A reader before the first argument.
static inline cdbus_reader_t cdbus_reader_make(const cdbus_message_t *message) {
    return (cdbus_reader_t){.start = message->start, .type = message->signature, .position = message->body,
                            .end = message->length, .is_swapped = message->is_swapped};
}

/// The type of the next value; `DBUS_TYPE_INVALID` at the end.
static inline int cdbus_reader_type(const cdbus_reader_t *reader) {
    if (reader->is_array && reader->position >= reader->end) return DBUS_TYPE_INVALID;
    switch (*reader->type) {
        case ')':
        case '}': return DBUS_TYPE_INVALID;
        case '(': return DBUS_TYPE_STRUCT;
        case '{': return DBUS_TYPE_DICT_ENTRY;
        default: return *reader->type;
    }
}

/// The value at the reader, in place, of any type but containers, and of `ay`. The reader continues with the next one.
/// Numbers are not aligned, and in the byte order of the message.
const void *cdbus_reader_value(cdbus_reader_t *reader, uint32_t *length);

/// Skips one value. Does nothing at the end.
void cdbus_reader_next(cdbus_reader_t *reader);

/// A reader of what the container at `reader` contains…
cdbus_reader_t cdbus_reader_enter(const cdbus_reader_t *reader);
/// …and `reader` continues after it.
void cdbus_reader_leave(cdbus_reader_t *reader, cdbus_reader_t *inner);

/// The end of the complete type that begins at `type`.
const char *cdbus_type_end(const char *type);

// environment -------------------------------------------------------------------------------------------------

// secure_getenv(3), which Swift does not import.
const char *_Nullable cdbus_getenv(const char *name);

#pragma clang assume_nonnull end
#endif
