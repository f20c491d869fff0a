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

    deinit { g_main_context_unref(context) }

    private final class Work {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    /// Not `g_main_context_invoke`, which would call back within a call of the app's on the context's own thread.
    func perform(_ work: @escaping @Sendable () -> Void) {
        let source = bluez_idle_source()
        g_source_set_priority(source, priority)
        g_source_set_callback(
            source,
            { work in
                // holds: ``perform(_:)`` has set it
                if let work { Unmanaged<Work>.fromOpaque(work).takeUnretainedValue().run() }
                return 0  // G_SOURCE_REMOVE
            }, Unmanaged.passRetained(Work(work)).toOpaque(),
            { work in
                if let work { Unmanaged<Work>.fromOpaque(work).release() }
            })
        g_source_set_name(source, "bluezkit.callbacks")
        g_source_attach(source, context)
        g_source_unref(source)
    }

    var queueOfAnyThread: DispatchQueue? { nil }
}
