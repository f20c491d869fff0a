#include "CDBus.h"

#include <stdio.h>

DBusConnection *cdbus_connection_open(const char *address, cdbus_error_t *error) {
    DBusError failure = DBUS_ERROR_INIT;
    error->name[0] = error->message[0] = 0;
    if (!dbus_threads_init_default()) return NULL;
    DBusConnection *connection = dbus_connection_open_private(address, &failure);
    if (!connection) {
        snprintf(error->name, sizeof error->name, "%s", failure.name ? failure.name : DBUS_ERROR_FAILED);
        snprintf(error->message, sizeof error->message, "%s", failure.message ? failure.message : "");
        dbus_error_free(&failure);
        return NULL;
    }
    dbus_connection_set_exit_on_disconnect(connection, FALSE);
    return connection;
}

void cdbus_connection_close(DBusConnection *connection) {
    dbus_connection_close(connection);
    dbus_connection_unref(connection);
}
