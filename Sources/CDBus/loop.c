#define _GNU_SOURCE
#include "CDBus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

// libdbus has one watch for reading and one for writing; a connection that is being set up may have others.
enum { MAX_WATCHES = 8 };

// One thread at a time leads: it waits for `work_fd`. The others wait for `gate_fd`, which lets one of them through as soon as
// there is work, once it has been opened, or when a pause is over. So no thread has to wake another one in order to be replaced.
struct cdbus_loop {
    int work_fd;   // an epoll of the descriptors that there is something to do for
    int gate_fd;   // an epoll of `work_fd`, once each time that the gate is opened, of the timer and of the end
    int timer_fd;  // ends a pause
    int turn_fd;   // written to where there is something to do for libdbus, but no descriptor that says so
    int end_fd;    // readable once the loop has ended
    atomic_bool is_paused;
    atomic_uint releases;  // a memory barrier between one thread that leads and the next, as the gate is one only for the kernel
    DBusConnection *connection;
    int failure;  // -errno: something is not waited for
    DBusWatch *watches[MAX_WATCHES];
    int input_fd;  // the connection's socket, from which libdbus no longer reads; -1: it still does, to authenticate
    // What the thread that leads has found.
    struct epoll_event ready[CDBUS_MAX_READY];
    int ready_count;
};

static int add(int epoll_fd, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

cdbus_loop_t *cdbus_loop_new(void) {
    cdbus_loop_t *loop = calloc(1, sizeof *loop);
    if (!loop) return NULL;
    loop->input_fd = -1;
    loop->work_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->gate_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    loop->turn_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->work_fd < 0 || loop->gate_fd < 0 || loop->timer_fd < 0 || loop->turn_fd < 0 || loop->end_fd < 0 ||
        add(loop->work_fd, loop->end_fd, EPOLLIN) || add(loop->work_fd, loop->turn_fd, EPOLLIN | EPOLLET) ||
        add(loop->gate_fd, loop->end_fd, EPOLLIN) || add(loop->gate_fd, loop->timer_fd, EPOLLIN | EPOLLET) ||
        add(loop->gate_fd, loop->work_fd, EPOLLONESHOT)) {
        cdbus_loop_free(loop);
        return NULL;
    }
    return loop;
}

void cdbus_loop_free(cdbus_loop_t *loop) {
    int fds[] = {loop->gate_fd, loop->work_fd, loop->timer_fd, loop->turn_fd, loop->end_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    free(loop);
}

void cdbus_loop_end(const cdbus_loop_t *loop) {
    eventfd_write(loop->end_fd, 1);  // can only fail where it has been written to before
}

// Waiting: any thread ------------------------------------------------------------------------------------------

static void open_gate(cdbus_loop_t *loop) {
    atomic_fetch_add(&loop->releases, 1);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = loop->work_fd};
    epoll_ctl(loop->gate_fd, EPOLL_CTL_MOD, loop->work_fd, &event);  // needs no memory: it is there
}

static int wait_for(int epoll_fd, struct epoll_event *events, int count) {
    int found;
    do found = epoll_wait(epoll_fd, events, count, -1);
    while (found < 0 && errno == EINTR);
    return found;
}

bool cdbus_loop_wait(cdbus_loop_t *loop, bool leads) {
    while (!leads) {
        struct epoll_event event;
        if (wait_for(loop->gate_fd, &event, 1) < 1 || event.data.fd == loop->end_fd) return false;
        // A pause that was called off may still come to its end.
        leads = event.data.fd == loop->work_fd || atomic_exchange(&loop->is_paused, false);
    }
    atomic_load(&loop->releases);
    loop->ready_count = wait_for(loop->work_fd, loop->ready, CDBUS_MAX_READY);
    for (int i = 0; i < loop->ready_count; i++)
        if (loop->ready[i].data.fd == loop->end_fd) return false;
    return loop->ready_count > 0;
}

void cdbus_loop_release(cdbus_loop_t *loop) { open_gate(loop); }

void cdbus_loop_pause(cdbus_loop_t *loop, uint64_t nanoseconds) {
    struct itimerspec length = {
        .it_value = {.tv_sec = (time_t)(nanoseconds / 1000000000), .tv_nsec = (long)(nanoseconds % 1000000000)}};
    atomic_store(&loop->is_paused, true);
    timerfd_settime(loop->timer_fd, 0, &length, NULL);
}

void cdbus_loop_resume(cdbus_loop_t *loop) {
    if (atomic_exchange(&loop->is_paused, false)) open_gate(loop);
}

// Handling: the connection's owner -------------------------------------------------------------------------------

/// Waits for what libdbus' watches of `fd` want. A descriptor that it wants nothing of is left out: its end would be reported
/// again and again.
static int update(const cdbus_loop_t *loop, int fd) {
    uint32_t events = 0;
    for (int i = 0; i < MAX_WATCHES; i++) {
        DBusWatch *watch = loop->watches[i];
        if (!watch || dbus_watch_get_unix_fd(watch) != fd || !dbus_watch_get_enabled(watch)) continue;
        unsigned flags = dbus_watch_get_flags(watch);
        if (flags & DBUS_WATCH_READABLE && loop->input_fd < 0) events |= EPOLLIN;
        if (flags & DBUS_WATCH_WRITABLE) events |= EPOLLOUT;
    }
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (!events) return epoll_ctl(loop->work_fd, EPOLL_CTL_DEL, fd, NULL) && errno != ENOENT ? -errno : 0;
    if (!epoll_ctl(loop->work_fd, EPOLL_CTL_MOD, fd, &event)) return 0;
    return errno == ENOENT ? add(loop->work_fd, fd, events) : -errno;
}

static void watch_remove(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    int left = 0;
    for (int i = 0; i < MAX_WATCHES; i++) {
        if (loop->watches[i] == watch) loop->watches[i] = NULL;
        left += loop->watches[i] != NULL;
    }
    update(loop, dbus_watch_get_unix_fd(watch));
    // libdbus has given up the connection, perhaps while it was writing: a turn notices.
    if (left == 0) eventfd_write(loop->turn_fd, 1);
}

static dbus_bool_t watch_add(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    for (int i = 0; i < MAX_WATCHES; i++) {
        if (loop->watches[i]) continue;
        loop->watches[i] = watch;
        if (!update(loop, dbus_watch_get_unix_fd(watch))) return TRUE;
        loop->watches[i] = NULL;
        return FALSE;
    }
    return FALSE;
}

static void watch_toggled(DBusWatch *watch, void *data) {
    cdbus_loop_t *loop = data;
    int result = update(loop, dbus_watch_get_unix_fd(watch));
    if (!result) return;
    loop->failure = result;
    eventfd_write(loop->turn_fd, 1);
}

int cdbus_loop_attach(cdbus_loop_t *loop, DBusConnection *connection) {
    if (!dbus_connection_set_watch_functions(connection, watch_add, watch_remove, watch_toggled, loop, NULL))
        return -ENOMEM;
    loop->connection = connection;
    return 0;
}

void cdbus_loop_detach(cdbus_loop_t *loop, DBusConnection *connection) {
    dbus_connection_set_watch_functions(connection, NULL, NULL, NULL, NULL, NULL);
    if (loop->input_fd < 0) return;
    shutdown(loop->input_fd, SHUT_RDWR);  // the other side is to see the end now, not when everything has let go of the socket
    cdbus_loop_unwatch(loop, loop->input_fd);
    close(loop->input_fd);
    loop->input_fd = -1;
}

int cdbus_loop_watch(const cdbus_loop_t *loop, int fd) { return add(loop->work_fd, fd, EPOLLIN); }

void cdbus_loop_unwatch(const cdbus_loop_t *loop, int fd) { epoll_ctl(loop->work_fd, EPOLL_CTL_DEL, fd, NULL); }

/// Takes the reading from libdbus as soon as it has authenticated. A bus says nothing before it has got `Hello`, which libdbus
/// sends after that; so nothing has been read.
static int take_input(cdbus_loop_t *loop) {
    int fd, original;
    if (loop->input_fd >= 0 || !dbus_connection_get_is_authenticated(loop->connection)) return 0;
    if (!dbus_connection_get_socket(loop->connection, &original)) return 0;  // it is lost already
    // libdbus may close its own at any time.
    fd = fcntl(original, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return -errno;
    int result = cdbus_loop_watch(loop, fd);
    if (result) {
        close(fd);
        return result;
    }
    loop->input_fd = fd;
    return update(loop, original);
}

static unsigned watch_flags(uint32_t events) {
    unsigned flags = 0;
    if (events & EPOLLIN) flags |= DBUS_WATCH_READABLE;
    if (events & EPOLLOUT) flags |= DBUS_WATCH_WRITABLE;
    if (events & EPOLLERR) flags |= DBUS_WATCH_ERROR;
    if (events & EPOLLHUP) flags |= DBUS_WATCH_HANGUP;
    return flags;
}

int cdbus_loop_handle(cdbus_loop_t *loop) {
    if (loop->failure) return loop->failure;
    for (int k = 0; k < loop->ready_count; k++) {
        // Handling may add and remove watches.
        for (int i = 0; i < MAX_WATCHES; i++) {
            DBusWatch *watch = loop->watches[i];
            if (!watch || dbus_watch_get_unix_fd(watch) != loop->ready[k].data.fd) continue;
            int result = take_input(loop);
            if (result) return result;
            unsigned flags = watch_flags(loop->ready[k].events);
            if (loop->input_fd >= 0) flags &= ~(unsigned)DBUS_WATCH_READABLE;
            if (flags && dbus_watch_get_enabled(watch)) dbus_watch_handle(watch, flags);
        }
    }
    return take_input(loop);
}

int cdbus_loop_input(const cdbus_loop_t *loop) { return loop->input_fd; }

int cdbus_loop_ready(const cdbus_loop_t *loop, int index) {
    return index < loop->ready_count ? loop->ready[index].data.fd : -1;
}
