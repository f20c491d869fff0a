import BluezKit
import CBluezGLib
import Dispatch

/// A `GMainContext` as the place of callbacks: whichever thread runs it makes them.
// holds: GLib's functions for contexts may be called by any thread, and nothing changes
final class ContextPlace: CallbackPlace, @unchecked Sendable {
    private let context: OpaquePointer?
    private let priority: Int32

    /// - Parameter context: nil: the default one.
    init(_ context: OpaquePointer?, priority: Int32) {
        self.context = g_main_context_ref(context ?? g_main_context_default())
        self.priority = priority
    }

    deinit {
        if let last = take() { g_source_unref(last.source) }
        g_main_context_unref(context)
    }

    /// Work that runs once, unless it is cancelled before.
    private final class Work: Sendable {
        private let body: Protected<(@Sendable () -> Void)?>

        init(_ body: @escaping @Sendable () -> Void) { self.body = Protected(body) }

        func take() -> (@Sendable () -> Void)? {
            body.withLock { body in
                defer { body = nil }
                return body
            }
        }
    }

    // holds: GLib's functions for sources may be called by any thread
    private struct Pending: @unchecked Sendable {
        let source: UnsafeMutablePointer<GSource>
        let work: Work
    }

    /// The work that was handed over last: it, the manager's events and this context keep each other while it waits.
    private let pending = Protected<Pending?>(nil)

    /// Not `g_main_context_invoke`, which would call back within a call of the app's on the context's own thread.
    func perform(_ work: @escaping @Sendable () -> Void) {
        let work = Work(work)
        let source = bluez_idle_source()
        g_source_set_priority(source, priority)
        g_source_set_callback(
            source,
            { work in
                // holds: ``perform(_:)`` has set it
                if let work { Unmanaged<Work>.fromOpaque(work).takeUnretainedValue().take()?() }
                return 0  // G_SOURCE_REMOVE
            }, Unmanaged.passRetained(work).toOpaque(),
            { work in
                if let work { Unmanaged<Work>.fromOpaque(work).release() }
            })
        g_source_set_name(source, "bluezkit.callbacks")
        // Attached under the lock: `cancel()` on another thread could otherwise free the source before. GLib calls
        // nothing of ours from here, and nothing of ours while it holds the lock of a context.
        let previous = pending.withLock { pending in
            defer { pending = Pending(source: source, work: work) }
            g_source_attach(source, context)
            return pending
        }
        // It has begun to run, or will.
        if let previous { g_source_unref(previous.source) }
    }

    func cancel() -> Bool {
        guard let last = take() else { return false }
        let isCancelled = last.work.take() != nil
        if isCancelled { g_source_destroy(last.source) }
        g_source_unref(last.source)
        return isCancelled
    }

    private func take() -> Pending? {
        pending.withLock { pending in
            defer { pending = nil }
            return pending
        }
    }

    var queueOfAnyThread: DispatchQueue? { nil }
}
