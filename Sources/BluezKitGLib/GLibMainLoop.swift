import BluezKit
import CBluezGLib
import Foundation

/// GLib's default main context as the main loop of a program that uses CoreBluetooth.
public enum GLibMainLoop {
    /// Why the main queue cannot be run by GLib.
    public enum Failure: Error, CustomStringConvertible {
        /// This version of libdispatch or Foundation does not tell when the main queue or the main run loop has work.
        case unsupportedRuntime

        /// One sentence that says what is wrong.
        public var description: String {
            "this version of Swift's libdispatch or Foundation does not let another main loop run the main queue"
        }
    }

    /// Makes the default `GMainContext` run the dispatch main queue and the timers of `RunLoop.main`.
    ///
    /// Callbacks of managers that were made with `queue: nil` then arrive on the main thread whenever it runs the
    /// default context, by `g_main_loop_run`, `g_application_run`, `gtk_main` or `g_main_context_iteration`, in order
    /// with GLib's own events. So does everything else on the main queue: `DispatchQueue.main.async`, and tasks of the
    /// main actor. Nothing polls, and no thread is started.
    ///
    /// - A loop that is run within a callback, or within other work of the main queue, handles GLib's events and timers
    ///   of `RunLoop.main`, but no further work of the main queue, which is serial: as on Apple's systems. Asynchronous
    ///   code of the main actor is such work, so a main program with `await` must not run the main loop.
    /// - The run loop is run in its default mode. A timer that another thread adds to `RunLoop.main`, and a block for
    ///   `RunLoop.perform`, are noticed when the main thread wakes up the next time, which `DispatchQueue.main.async
    ///   {}` brings about.
    ///
    /// Any thread may call it, also while the loop runs. Repeated calls only change the priority. The default context
    /// must be run by the main thread: if another thread runs it, that is logged as API MISUSE, and the main queue does
    /// not run; give each manager the context then, with `CBCentralManager.init(delegate:context:priority:options:)`.
    /// - Parameter priority: As for every source of GLib: negative is earlier, `G_PRIORITY_DEFAULT` is 0. GTK draws at
    ///   120, so with the default a burst of callbacks is handled before the next frame.
    /// - Throws: ``Failure``; with the toolchains that are known, never.
    public static func attach(priority: Int32 = 0) throws {
        let descriptor = bluez_main_queue_descriptor()
        guard descriptor >= 0 else { throw Failure.unsupportedRuntime }
        sources.withLock { sources in
            if sources.isEmpty {
                sources = [queueSource(descriptor), timerSource()]
                for source in sources { g_source_attach(source, nil) }
            }
            for source in sources { g_source_set_priority(source, priority) }
        }
        ForeignMainLoop.wakeUp.withLock { $0 = { g_main_context_wakeup(nil) } }
    }

    /// Both, while they are attached.
    private static let sources = Protected<[UnsafeMutablePointer<GSource>]>([])

    // MARK: The main queue

    /// Watches the descriptor of the main queue. GLib does not let it recurse, nor does libdispatch: in work of the
    /// main queue that runs a loop, no other work of the queue is done.
    private static func queueSource(_ descriptor: Int32) -> UnsafeMutablePointer<GSource> {
        let source = bluez_descriptor_source(descriptor) { descriptor, _, _ in
            guard Thread.isMainThread else {
                GLibMainLoop.detach()
                return 0  // G_SOURCE_REMOVE
            }
            if withUnsafeCurrentTask(body: { $0 != nil }) { GLibMainLoop.reportAsynchronousMain() }
            bluez_drain_main_queue(descriptor)
            return 1  // G_SOURCE_CONTINUE
        }
        g_source_set_name(source, "bluezkit.main-queue")
        return source
    }

    /// A task of the main actor is work of the main queue. Here it is not one that this source has started.
    private static func reportAsynchronousMain() {
        let isKnown = isAsynchronousMainReported.withLock { isReported in
            defer { isReported = true }
            return isReported
        }
        guard !isKnown else { return }
        Log.misuse(
            "GLibMainLoop: GLib's main loop is run by asynchronous code, which occupies the main queue, so no callback is made "
                + "there; run it by code without async")
    }

    private static let isAsynchronousMainReported = Protected(false)

    /// Another thread runs the default context: libdispatch ends the program if that runs the main queue.
    private static func detach() {
        let attached = sources.withLock { sources in
            defer { sources = [] }
            return sources
        }
        for source in attached {
            g_source_destroy(source)
            g_source_unref(source)
        }
        guard !attached.isEmpty else { return }
        Log.misuse(
            "GLibMainLoop: the default GMainContext is run by another thread than the main thread, so the main queue does "
                + "not run; make managers with init(delegate:context:) instead")
    }

    // MARK: Timers

    // holds: only the main thread uses it, in the functions of the source
    private static nonisolated(unsafe) var deadline = TimerDeadline()

    /// Looks for the next timer before GLib waits, and runs the run loop when it is due, also in a loop that is run
    /// within a timer or within work of the main queue.
    private static func timerSource() -> UnsafeMutablePointer<GSource> {
        // GLib keeps the address; one for the process.
        let functions = UnsafeMutablePointer<GSourceFuncs>.allocate(capacity: 1)
        functions.initialize(to: GSourceFuncs())
        functions.pointee.prepare = { _, timeout in
            let remaining = GLibMainLoop.remainingTime()
            timeout?.pointee = remaining
            return remaining == 0 ? 1 : 0
        }
        functions.pointee.check = { _ in GLibMainLoop.remainingTime() == 0 ? 1 : 0 }
        functions.pointee.dispatch = { _, _, _ in
            GLibMainLoop.runTimers()
            return 1  // G_SOURCE_CONTINUE
        }
        let source = bluez_source(functions)
        g_source_set_can_recurse(source, 1)
        g_source_set_name(source, "bluezkit.run-loop")
        return source
    }

    /// In microseconds, by the clock that GLib waits by.
    private static var monotonic: Int64 { Int64(g_get_monotonic_time()) }
    private static var now: Double { Date().timeIntervalSinceReferenceDate }

    /// One turn of the run loop, which does not wait.
    private static func runTimers() {
        _ = RunLoop.main.run(mode: .default, before: Date(timeIntervalSinceReferenceDate: 0))
        deadline.didRun(date: bluez_next_main_timer(), now: now, monotonic: monotonic)
    }

    /// Until the run loop must run, in milliseconds, rounded up; -1: no timer is set.
    private static func remainingTime() -> Int32 {
        guard Thread.isMainThread else { return -1 }
        let monotonic = monotonic
        deadline.update(date: bluez_next_main_timer(), now: now, monotonic: monotonic)
        guard let time = deadline.time else { return -1 }
        return Int32(clamping: (max(time - monotonic, 0) + 999) / 1000)
    }
}
