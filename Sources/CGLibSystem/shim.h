#include <glib.h>
#include <glib-unix.h>
#include <sys/eventfd.h>

// What a foreign main loop must know of libdispatch and Foundation, and what no header of theirs has. Both export it for
// such loops on Linux since Swift 3. Weak: where a symbol is missing, that is reported instead of failing to start.
extern int _dispatch_get_main_queue_port_4CF(void) __attribute__((weak));
extern void _dispatch_main_queue_callback_4CF(void *message) __attribute__((weak));
extern const void *CFRunLoopGetMain(void) __attribute__((weak));
extern const void *const kCFRunLoopDefaultMode __attribute__((weak));
extern double CFRunLoopGetNextTimerFireDate(const void *loop, const void *mode) __attribute__((weak));

// The eventfd that is readable when the dispatch main queue has work; -1: this libdispatch or Foundation has no such thing.
static inline int bluez_main_queue_descriptor(void) {
  if (!_dispatch_get_main_queue_port_4CF || !_dispatch_main_queue_callback_4CF || !CFRunLoopGetMain ||
      !&kCFRunLoopDefaultMode || !CFRunLoopGetNextTimerFireDate)
    return -1;
  return _dispatch_get_main_queue_port_4CF();
}

// Runs the work that is on the main queue now. Main thread.
static inline void bluez_drain_main_queue(int descriptor) {
  eventfd_t count;
  eventfd_read(descriptor, &count);  // first: later work makes it readable again
  _dispatch_main_queue_callback_4CF(NULL);
}

// When the next timer of the main run loop is due, in seconds since 2001; 0: there is none.
static inline double bluez_next_main_timer(void) {
  return CFRunLoopGetNextTimerFireDate(CFRunLoopGetMain(), kCFRunLoopDefaultMode);
}

// GLib ends the program where it has no memory, so these return no NULL.

// A source that calls `run` while `descriptor` is readable.
static inline GSource *_Nonnull bluez_descriptor_source(int descriptor, GUnixFDSourceFunc run) {
  GSource *source = g_unix_fd_source_new(descriptor, G_IO_IN);
  g_source_set_callback(source, G_SOURCE_FUNC(run), NULL, NULL);
  return source;
}

static inline GSource *_Nonnull bluez_source(GSourceFuncs *functions) {
  return g_source_new(functions, sizeof(GSource));
}

static inline GSource *_Nonnull bluez_idle_source(void) { return g_idle_source_new(); }
