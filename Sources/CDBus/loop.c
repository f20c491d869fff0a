#define _GNU_SOURCE
#include "CDBus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

// libdbus has one watch for reading and one for writing; a connection that is being set up may have others.
enum { MAX_WATCHES = 8 };

struct cdbus_loop {
    int epoll_fd, wake_fd;
    atomic_int waiting;  // threads that wait, or will
    DBusConnection *connection;
    int input_fd;  // the connection's socket, from which libdbus no longer reads; -1: it still does, to authenticate
    DBusWatch *watches[MAX_WATCHES];
};

/// One thread gets an event, and no other thread the next one of this descriptor before that is asked for.
static int ask(const cdbus_loop_t *loop, int operation, int fd, uint32_t events) {
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
    return epoll_ctl(loop->epoll_fd, operation, fd, &event) ? -errno : 0;
}

cdbus_loop_t *cdbus_loop_new(void) {
    cdbus_loop_t *loop = calloc(1, sizeof *loop);
    if (!loop) return NULL;
    loop->input_fd = -1;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = loop->wake_fd};
    if (loop->epoll_fd >= 0 && loop->wake_fd >= 0 &&
        !epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event))
        return loop;
    cdbus_loop_free(loop);
    return NULL;
}

void cdbus_loop_free(cdbus_loop_t *loop) {
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    if (loop->epoll_fd >= 0) close(loop->epoll_fd);
    free(loop);
}

void cdbus_loop_wake(cdbus_loop_t *loop) {
    uint64_t one = 1;
    // Can only fail by overflow, and then all waits end as well.
    if (write(loop->wake_fd, &one, sizeof one) < 0) return;
}

// libdbus' watches ----------------------------------------------------------------------------------------------

/// Asks for what the watches of a descriptor want.
static int update(cdbus_loop_t *loop, int fd) {
    uint32_t events = 0;
    for (int i = 0; i < MAX_WATCHES; i++) {
        DBusWatch *watch = loop->watches[i];
        if (!watch || dbus_watch_get_unix_fd(watch) != fd || !dbus_watch_get_enabled(watch)) continue;
        unsigned flags = dbus_watch_get_flags(watch);
        if (flags & DBUS_WATCH_READABLE && loop->input_fd < 0) events |= EPOLLIN;
        if (flags & DBUS_WATCH_WRITABLE) events |= EPOLLOUT;
    }
    if (!events) {
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    int result = ask(loop, EPOLL_CTL_MOD, fd, events);
    return result == -ENOENT ? ask(loop, EPOLL_CTL_ADD, fd, events) : result;
}

static dbus_bool_t watch_add(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    for (int i = 0; i < MAX_WATCHES; i++) {
        if (loop->watches[i]) continue;
        loop->watches[i] = watch;
        return update(loop, dbus_watch_get_unix_fd(watch)) == 0;
    }
    return FALSE;
}

static void watch_remove(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    for (int i = 0; i < MAX_WATCHES; i++)
        if (loop->watches[i] == watch) loop->watches[i] = NULL;
    update(loop, dbus_watch_get_unix_fd(watch));
    cdbus_loop_wake(loop);  // the connection may be lost
}

static void watch_toggled(DBusWatch *watch, void *data) { update(data, dbus_watch_get_unix_fd(watch)); }

int cdbus_loop_attach(cdbus_loop_t *loop, DBusConnection *connection) {
    if (!dbus_connection_set_watch_functions(connection, watch_add, watch_remove, watch_toggled, loop, NULL))
        return -ENOMEM;
    loop->connection = connection;
    return 0;
}

void cdbus_loop_detach(cdbus_loop_t *loop, DBusConnection *connection) {
    dbus_connection_set_watch_functions(connection, NULL, NULL, NULL, NULL, NULL);
    if (loop->input_fd < 0) return;
    shutdown(loop->input_fd, SHUT_RDWR);  // for the other side, in case a child process has inherited libdbus' socket
    close(loop->input_fd);
    loop->input_fd = -1;
}

/// Takes the reading from libdbus as soon as it has authenticated. A bus says nothing before it has got `Hello`, which
/// libdbus sends after that; so nothing has been read.
static int take_input(cdbus_loop_t *loop) {
    int fd;
    if (loop->input_fd >= 0 || !dbus_connection_get_is_authenticated(loop->connection)) return 0;
    if (!dbus_connection_get_socket(loop->connection, &fd)) return 0;  // it is lost already
    // libdbus may close its own at any time.
    int input = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (input < 0) return -errno;
    loop->input_fd = input;
    update(loop, fd);
    return ask(loop, EPOLL_CTL_ADD, input, EPOLLIN);
}

static int handle_watch(cdbus_loop_t *loop, DBusWatch *watch, uint32_t events) {
    unsigned wanted = dbus_watch_get_flags(watch), flags = 0;
    int result = take_input(loop);
    if (events & EPOLLIN && loop->input_fd < 0) flags |= DBUS_WATCH_READABLE;
    if (events & EPOLLOUT) flags |= DBUS_WATCH_WRITABLE;
    flags &= wanted;
    if (events & EPOLLERR) flags |= DBUS_WATCH_ERROR;
    if (events & EPOLLHUP) flags |= DBUS_WATCH_HANGUP;
    if (!result && flags && dbus_watch_get_enabled(watch)) dbus_watch_handle(watch, flags);
    return result;
}

int cdbus_loop_handle(cdbus_loop_t *loop, const cdbus_event_t *event) {
    bool is_watched = false;
    int result = 0;
    uint64_t ignored;
    if (event->fd == loop->wake_fd && read(loop->wake_fd, &ignored, sizeof ignored) < 0) return 0;  // EAGAIN
    for (int i = 0; i < MAX_WATCHES && !result; i++) {  // handling may add and remove watches
        if (!loop->watches[i] || dbus_watch_get_unix_fd(loop->watches[i]) != event->fd) continue;
        is_watched = true;
        result = handle_watch(loop, loop->watches[i], event->events);
    }
    if (!is_watched) return result;
    update(loop, event->fd);
    return result ? result : take_input(loop);
}

int cdbus_loop_input(const cdbus_loop_t *loop) { return loop->input_fd; }

// other descriptors ---------------------------------------------------------------------------------------------

int cdbus_loop_watch(cdbus_loop_t *loop, int fd) { return ask(loop, EPOLL_CTL_ADD, fd, EPOLLIN); }
void cdbus_loop_unwatch(cdbus_loop_t *loop, int fd) { epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL); }
void cdbus_loop_again(cdbus_loop_t *loop, int fd) { ask(loop, EPOLL_CTL_MOD, fd, EPOLLIN); }

// waiting -------------------------------------------------------------------------------------------------------

int cdbus_loop_wait(cdbus_loop_t *loop, cdbus_event_t *events, int count) {
    struct epoll_event found[CDBUS_MAX_EVENTS];
    int result = epoll_wait(loop->epoll_fd, found, count < CDBUS_MAX_EVENTS ? count : CDBUS_MAX_EVENTS, -1);
    for (int i = 0; i < result; i++) events[i] = (cdbus_event_t){.fd = found[i].data.fd, .events = found[i].events};
    return result < 0 ? 0 : result;  // EINTR
}

bool cdbus_loop_join(cdbus_loop_t *loop) {
    int waiting = atomic_load(&loop->waiting);
    while (waiting < 2)
        if (atomic_compare_exchange_weak(&loop->waiting, &waiting, waiting + 1)) return true;
    return false;
}

bool cdbus_loop_leave(cdbus_loop_t *loop) { return atomic_fetch_sub(&loop->waiting, 1) == 1; }
