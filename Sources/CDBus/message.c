#include "CDBus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int cdbus_is_path(const char *string) { return dbus_validate_path(string, NULL); }
int cdbus_is_interface(const char *string) { return dbus_validate_interface(string, NULL); }
int cdbus_is_member(const char *string) { return dbus_validate_member(string, NULL); }
int cdbus_is_bus_name(const char *string) { return dbus_validate_bus_name(string, NULL); }
int cdbus_is_single_signature(const char *string) { return dbus_signature_validate_single(string, NULL); }

DBusMessage *cdbus_message_new_call(const char *destination, const char *path, const char *interface,
                                    const char *member) {
    if (destination && !cdbus_is_bus_name(destination)) return NULL;
    if (interface && !cdbus_is_interface(interface)) return NULL;
    if (!cdbus_is_path(path) || !cdbus_is_member(member)) return NULL;
    return dbus_message_new_method_call(destination, path, interface, member);
}

DBusMessage *cdbus_message_new_signal(const char *destination, const char *path, const char *interface,
                                      const char *member) {
    if (destination && !cdbus_is_bus_name(destination)) return NULL;
    if (!cdbus_is_path(path) || !cdbus_is_interface(interface) || !cdbus_is_member(member)) return NULL;
    DBusMessage *message = dbus_message_new_signal(path, interface, member);
    if (message && destination && !dbus_message_set_destination(message, destination)) {
        dbus_message_unref(message);
        return NULL;
    }
    return message;
}

static DBusMessage *new_answer(int type, uint32_t serial, const char *destination) {
    DBusMessage *message = dbus_message_new(type);
    if (!message) return NULL;
    dbus_message_set_no_reply(message, TRUE);
    if (dbus_message_set_reply_serial(message, serial) && dbus_message_set_destination(message, destination))
        return message;
    dbus_message_unref(message);
    return NULL;
}

DBusMessage *cdbus_message_new_return(uint32_t serial, const char *destination) {
    return new_answer(DBUS_MESSAGE_TYPE_METHOD_RETURN, serial, destination);
}

DBusMessage *cdbus_message_new_error(uint32_t serial, const char *destination, const char *name, const char *text) {
    if (!dbus_validate_error_name(name, NULL) || !dbus_validate_utf8(text, NULL)) return NULL;
    DBusMessage *message = new_answer(DBUS_MESSAGE_TYPE_ERROR, serial, destination);
    if (!message) return NULL;
    if (dbus_message_set_error_name(message, name) &&
        dbus_message_append_args(message, DBUS_TYPE_STRING, &text, DBUS_TYPE_INVALID))
        return message;
    dbus_message_unref(message);
    return NULL;
}

int cdbus_iter_append_string(DBusMessageIter *iter, int type, const char *string) {
    int valid;
    switch (type) {
        case DBUS_TYPE_STRING: valid = dbus_validate_utf8(string, NULL); break;
        case DBUS_TYPE_OBJECT_PATH: valid = dbus_validate_path(string, NULL); break;
        case DBUS_TYPE_SIGNATURE: valid = dbus_signature_validate(string, NULL); break;
        default: valid = 0;
    }
    if (!valid) return -EINVAL;
    return dbus_message_iter_append_basic(iter, type, &string) ? 0 : -ENOMEM;
}

int cdbus_iter_append_basic(DBusMessageIter *iter, int type, const void *value) {
    switch (type) {
        case DBUS_TYPE_STRING:
        case DBUS_TYPE_OBJECT_PATH:
        case DBUS_TYPE_SIGNATURE: return -EINVAL;
        case DBUS_TYPE_UNIX_FD:
            if (fcntl(*(const int *)value, F_GETFD) < 0) return -EINVAL;
            break;
        case DBUS_TYPE_BOOLEAN:  // libdbus aborts on anything other than 0 and 1
            if (*(const dbus_bool_t *)value > 1) return -EINVAL;
            break;
        default:
            if (!dbus_type_is_basic(type)) return -EINVAL;
    }
    return dbus_message_iter_append_basic(iter, type, value) ? 0 : -ENOMEM;
}

int cdbus_iter_append_bytes(DBusMessageIter *iter, const uint8_t *bytes, size_t count) {
    DBusMessageIter array;
    if (count > DBUS_MAXIMUM_ARRAY_LENGTH) return -E2BIG;
    if (!dbus_message_iter_open_container(iter, DBUS_TYPE_ARRAY, DBUS_TYPE_BYTE_AS_STRING, &array)) return -ENOMEM;
    if (count && !dbus_message_iter_append_fixed_array(&array, DBUS_TYPE_BYTE, &bytes, (int)count)) {
        dbus_message_iter_abandon_container(iter, &array);
        return -ENOMEM;
    }
    return dbus_message_iter_close_container(iter, &array) ? 0 : -ENOMEM;
}

int cdbus_iter_open(DBusMessageIter *iter, int type, const char *contained, DBusMessageIter *sub) {
    if (contained && type != DBUS_TYPE_ARRAY && type != DBUS_TYPE_VARIANT) return -EINVAL;
    if (contained && type == DBUS_TYPE_VARIANT && !cdbus_is_single_signature(contained)) return -EINVAL;
    if (contained && type == DBUS_TYPE_ARRAY) {
        char array[DBUS_MAXIMUM_SIGNATURE_LENGTH + 1];  // a dict entry is a type only inside an array
        int length = snprintf(array, sizeof array, "a%s", contained);
        if (length >= (int)sizeof array || !cdbus_is_single_signature(array)) return -EINVAL;
    }
    return dbus_message_iter_open_container(iter, type, contained, sub) ? 0 : -ENOMEM;
}

int cdbus_iter_close(DBusMessageIter *iter, DBusMessageIter *sub) {
    return dbus_message_iter_close_container(iter, sub) ? 0 : -ENOMEM;
}
