#define _GNU_SOURCE
#include "CDBus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// libdbus has one watch for reading and one for writing; a connection that is being set up may have others.
enum { MAX_WATCHES = 8, MAX_TIMEOUTS = 32 };

typedef struct {
    DBusWatch *watch;
    int fd;
    short events;  // what to poll for; 0: disabled
    short ready;   // what the last wait found
} watch_t;

typedef struct {
    DBusTimeout *timeout;
    int64_t due;  // milliseconds of CLOCK_MONOTONIC; -1: disabled
} timeout_t;

struct cdbus_loop {
    pthread_mutex_t lock;  // guards what follows: `wait` reads it while the owner of the connection may change it
    int wake_fd;
    int woken;
    int epoll_fd;  // of the descriptors that do not belong to libdbus; -1: there was none yet
    int any_ready;  // whether the last wait found any of them
    DBusConnection *connection;
    int input_fd;     // the connection's socket, from which libdbus no longer reads; -1: it still does, to authenticate
    int input_ready;  // what the last wait found there
    watch_t watches[MAX_WATCHES];
    timeout_t timeouts[MAX_TIMEOUTS];
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

cdbus_loop_t *cdbus_loop_new(void) {
    cdbus_loop_t *loop = calloc(1, sizeof *loop);
    if (!loop) return NULL;
    pthread_mutex_init(&loop->lock, NULL);
    loop->epoll_fd = loop->input_fd = -1;
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0) {
        free(loop);
        return NULL;
    }
    return loop;
}

void cdbus_loop_free(cdbus_loop_t *loop) {
    close(loop->wake_fd);
    if (loop->epoll_fd >= 0) close(loop->epoll_fd);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void cdbus_loop_wake(cdbus_loop_t *loop) {
    pthread_mutex_lock(&loop->lock);
    if (!loop->woken) {
        uint64_t one = 1;
        loop->woken = 1;
        // Can only fail by overflow, and then the wait ends as well.
        if (write(loop->wake_fd, &one, sizeof one) < 0) loop->woken = 1;
    }
    pthread_mutex_unlock(&loop->lock);
}

static void watch_update(const cdbus_loop_t *loop, watch_t *entry) {
    unsigned flags = dbus_watch_get_flags(entry->watch);
    entry->events = 0;
    if (!dbus_watch_get_enabled(entry->watch)) return;
    if (flags & DBUS_WATCH_READABLE && loop->input_fd < 0) entry->events |= POLLIN;
    if (flags & DBUS_WATCH_WRITABLE) entry->events |= POLLOUT;
}

static dbus_bool_t watch_add(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    dbus_bool_t added = FALSE;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_WATCHES && !added; i++) {
        if (loop->watches[i].watch) continue;
        loop->watches[i] = (watch_t){.watch = watch, .fd = dbus_watch_get_unix_fd(watch)};
        watch_update(loop, &loop->watches[i]);
        added = TRUE;
    }
    pthread_mutex_unlock(&loop->lock);
    cdbus_loop_wake(loop);
    return added;
}

static void watch_remove(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_WATCHES; i++)
        if (loop->watches[i].watch == watch) loop->watches[i] = (watch_t){0};
    pthread_mutex_unlock(&loop->lock);
    cdbus_loop_wake(loop);
}

static void watch_toggled(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    short more = 0;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_WATCHES; i++) {
        if (loop->watches[i].watch != watch) continue;
        short before = loop->watches[i].events;
        watch_update(loop, &loop->watches[i]);
        more = loop->watches[i].events & ~before;
    }
    pthread_mutex_unlock(&loop->lock);
    // Only an added interest has to end a wait. For a removed one, `handle` finds nothing once.
    if (more) cdbus_loop_wake(loop);
}

static void timeout_update(timeout_t *entry) {
    entry->due = dbus_timeout_get_enabled(entry->timeout) ? now_ms() + dbus_timeout_get_interval(entry->timeout) : -1;
}

static dbus_bool_t timeout_add(DBusTimeout *timeout, void *data) {
    cdbus_loop_t *loop = data;
    dbus_bool_t added = FALSE;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_TIMEOUTS && !added; i++) {
        if (loop->timeouts[i].timeout) continue;
        loop->timeouts[i].timeout = timeout;
        timeout_update(&loop->timeouts[i]);
        added = TRUE;
    }
    pthread_mutex_unlock(&loop->lock);
    cdbus_loop_wake(loop);
    return added;
}

static void timeout_remove(DBusTimeout *timeout, void *data) {
    cdbus_loop_t *loop = data;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_TIMEOUTS; i++)
        if (loop->timeouts[i].timeout == timeout) loop->timeouts[i] = (timeout_t){0};
    pthread_mutex_unlock(&loop->lock);
}

static void timeout_toggled(DBusTimeout *timeout, void *data) {
    cdbus_loop_t *loop = data;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_TIMEOUTS; i++)
        if (loop->timeouts[i].timeout == timeout) timeout_update(&loop->timeouts[i]);
    pthread_mutex_unlock(&loop->lock);
    cdbus_loop_wake(loop);
}

int cdbus_loop_attach(cdbus_loop_t *loop, DBusConnection *connection) {
    if (!dbus_connection_set_watch_functions(connection, watch_add, watch_remove, watch_toggled, loop, NULL))
        return -ENOMEM;
    if (!dbus_connection_set_timeout_functions(connection, timeout_add, timeout_remove, timeout_toggled, loop, NULL)) {
        cdbus_loop_detach(loop, connection);
        return -ENOMEM;
    }
    loop->connection = connection;
    return 0;
}

void cdbus_loop_detach(cdbus_loop_t *loop, DBusConnection *connection) {
    dbus_connection_set_watch_functions(connection, NULL, NULL, NULL, NULL, NULL);
    dbus_connection_set_timeout_functions(connection, NULL, NULL, NULL, NULL, NULL);
    pthread_mutex_lock(&loop->lock);
    int fd = loop->input_fd;
    loop->input_fd = -1;
    pthread_mutex_unlock(&loop->lock);
    if (fd < 0) return;
    shutdown(fd, SHUT_RDWR);  // the other side is to see the end now, not when `wait` has let go of the socket
    close(fd);
}

int cdbus_loop_watch(cdbus_loop_t *loop, int fd) {
    int result = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    pthread_mutex_lock(&loop->lock);
    bool is_first = loop->epoll_fd < 0;
    if (is_first) loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event)) result = -errno;
    pthread_mutex_unlock(&loop->lock);
    if (is_first) cdbus_loop_wake(loop);  // a wait that has begun does not know of it
    return result;
}

void cdbus_loop_unwatch(cdbus_loop_t *loop, int fd) {
    pthread_mutex_lock(&loop->lock);
    if (loop->epoll_fd >= 0) epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    pthread_mutex_unlock(&loop->lock);
}

int cdbus_loop_ready(cdbus_loop_t *loop, int *fds, int count) {
    struct epoll_event events[16];
    pthread_mutex_lock(&loop->lock);
    int any = loop->any_ready, epoll_fd = loop->epoll_fd;
    loop->any_ready = 0;
    pthread_mutex_unlock(&loop->lock);
    if (!any) return 0;
    int found = epoll_wait(epoll_fd, events, count < 16 ? count : 16, 0);
    for (int i = 0; i < found; i++) fds[i] = events[i].data.fd;
    return found < 0 ? 0 : found;
}

void cdbus_loop_wait(cdbus_loop_t *loop) {
    struct pollfd fds[MAX_WATCHES + 3];
    DBusWatch *polled[MAX_WATCHES];
    int count = 0;
    int64_t due = -1;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_WATCHES; i++) {
        loop->watches[i].ready = 0;
        if (!loop->watches[i].watch || !loop->watches[i].events) continue;
        fds[count] = (struct pollfd){.fd = loop->watches[i].fd, .events = loop->watches[i].events};
        polled[count++] = loop->watches[i].watch;
    }
    for (int i = 0; i < MAX_TIMEOUTS; i++) {
        if (!loop->timeouts[i].timeout || loop->timeouts[i].due < 0) continue;
        if (due < 0 || loop->timeouts[i].due < due) due = loop->timeouts[i].due;
    }
    loop->any_ready = 0;
    fds[count] = (struct pollfd){.fd = loop->wake_fd, .events = POLLIN};
    fds[count + 1] = (struct pollfd){.fd = loop->epoll_fd, .events = POLLIN};  // -1 is ignored
    fds[count + 2] = (struct pollfd){.fd = loop->input_fd, .events = POLLIN};
    loop->input_ready = 0;
    pthread_mutex_unlock(&loop->lock);

    int wait_ms = -1;
    if (due >= 0) {
        int64_t left = due - now_ms();
        wait_ms = left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
    }
    if (poll(fds, (nfds_t)count + 3, wait_ms) <= 0) return;  // a timeout, or EINTR

    pthread_mutex_lock(&loop->lock);
    if (fds[count].revents) {
        uint64_t ignored;
        loop->woken = 0;
        if (read(loop->wake_fd, &ignored, sizeof ignored) < 0) loop->woken = 0;  // EAGAIN: nothing to clear
    }
    loop->any_ready = fds[count + 1].revents != 0;
    loop->input_ready = fds[count + 2].revents != 0;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < MAX_WATCHES; i++)  // a watch may have been removed meanwhile
            if (loop->watches[i].watch == polled[k] && loop->watches[i].fd == fds[k].fd)
                loop->watches[i].ready = fds[k].revents;
    pthread_mutex_unlock(&loop->lock);
}

void cdbus_loop_pause(const cdbus_loop_t *loop, uint64_t nanoseconds) {
    struct pollfd wake = {.fd = loop->wake_fd, .events = POLLIN};
    struct timespec length = {
        .tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)};
    ppoll(&wake, 1, &length, NULL);
}

/// Returns a watch that the last wait found ready; NULL: no more. `flags` is for what.
static DBusWatch *take_ready(cdbus_loop_t *loop, unsigned *flags) {
    DBusWatch *watch = NULL;
    short ready = 0;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_WATCHES && !watch; i++) {
        if (!loop->watches[i].watch || !loop->watches[i].ready) continue;
        watch = loop->watches[i].watch;
        ready = loop->watches[i].ready;
        loop->watches[i].ready = 0;
    }
    pthread_mutex_unlock(&loop->lock);
    *flags = 0;
    if (ready & POLLIN) *flags |= DBUS_WATCH_READABLE;
    if (ready & POLLOUT) *flags |= DBUS_WATCH_WRITABLE;
    if (ready & (POLLERR | POLLNVAL)) *flags |= DBUS_WATCH_ERROR;
    if (ready & POLLHUP) *flags |= DBUS_WATCH_HANGUP;
    return watch;
}

/// Returns a timeout that was due at `now`, and sets it again; NULL: no more.
static DBusTimeout *take_due(cdbus_loop_t *loop, int64_t now) {
    DBusTimeout *timeout = NULL;
    pthread_mutex_lock(&loop->lock);
    for (int i = 0; i < MAX_TIMEOUTS && !timeout; i++) {
        if (!loop->timeouts[i].timeout || loop->timeouts[i].due < 0 || loop->timeouts[i].due > now) continue;
        timeout = loop->timeouts[i].timeout;
        timeout_update(&loop->timeouts[i]);
    }
    pthread_mutex_unlock(&loop->lock);
    return timeout;
}

/// Takes the reading from libdbus as soon as it has authenticated. A bus says nothing before it has got `Hello`, which libdbus
/// sends after that; so nothing has been read.
static int take_input(cdbus_loop_t *loop) {
    int fd;
    if (loop->input_fd >= 0 || !dbus_connection_get_is_authenticated(loop->connection)) return 0;
    if (!dbus_connection_get_socket(loop->connection, &fd)) return 0;  // it is lost already
    // libdbus may close its own at any time.
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return -errno;
    pthread_mutex_lock(&loop->lock);
    loop->input_fd = fd;
    for (int i = 0; i < MAX_WATCHES; i++)
        if (loop->watches[i].watch) watch_update(loop, &loop->watches[i]);
    pthread_mutex_unlock(&loop->lock);
    return 0;
}

int cdbus_loop_handle(cdbus_loop_t *loop) {
    unsigned flags;
    int64_t now = now_ms();
    // Without the lock: handling may add and remove watches and timeouts.
    for (DBusWatch *watch; (watch = take_ready(loop, &flags));) {
        int result = take_input(loop);
        if (result) return result;
        if (loop->input_fd >= 0) flags &= ~(unsigned)DBUS_WATCH_READABLE;
        if (flags) dbus_watch_handle(watch, flags);
    }
    for (DBusTimeout *timeout; (timeout = take_due(loop, now));) dbus_timeout_handle(timeout);
    return take_input(loop);
}

int cdbus_loop_input(const cdbus_loop_t *loop, bool *is_ready) {
    *is_ready = loop->input_ready;
    return loop->input_fd;
}
