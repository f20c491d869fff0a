import CBluezGLib
import Foundation

// GLib as a C program uses it, with closures.

private final class Body {
    let run: () -> Bool
    init(_ run: @escaping () -> Bool) { self.run = run }
}

private func attach(
    _ source: UnsafeMutablePointer<GSource>, to context: OpaquePointer?, priority: Int32, _ body: @escaping () -> Bool
) {
    g_source_set_priority(source, priority)
    g_source_set_callback(
        source,
        { body in
            body.map { Unmanaged<Body>.fromOpaque($0).takeUnretainedValue().run() } == true ? 1 : 0
        }, Unmanaged.passRetained(Body(body)).toOpaque(),
        { body in body.map { Unmanaged<Body>.fromOpaque($0).release() } })
    g_source_attach(source, context)
    g_source_unref(source)
}

/// Calls `body` until it returns false, each time that nothing of a higher priority is due.
func whenIdle(_ context: OpaquePointer? = nil, priority: Int32 = 0, _ body: @escaping () -> Bool) {
    if let source = g_idle_source_new() { attach(source, to: context, priority: priority, body) }
}

/// Calls `body` once.
func after(
    _ milliseconds: UInt32, _ context: OpaquePointer? = nil, priority: Int32 = 0, _ body: @escaping () -> Void
) {
    guard let source = g_timeout_source_new(milliseconds) else { return }
    attach(source, to: context, priority: priority) {
        body()
        return false
    }
}

/// Calls `body` when the context is freed, which ends its sources.
func whenFreed(_ context: OpaquePointer?, _ body: @escaping () -> Void) {
    guard let source = g_timeout_source_new_seconds(1_000_000) else { return }
    g_source_set_callback(
        source, { _ in 1 },
        Unmanaged.passRetained(
            Body {
                body(); return false
            }
        ).toOpaque(),
        { body in
            guard let body else { return }
            _ = Unmanaged<Body>.fromOpaque(body).takeRetainedValue().run()
        })
    g_source_attach(source, context)
    g_source_unref(source)
}

/// A `GMainLoop`.
final class Loop {
    private let loop: OpaquePointer?
    init(_ context: OpaquePointer? = nil) { loop = g_main_loop_new(context, 0) }
    deinit { g_main_loop_unref(loop) }
    func run() { g_main_loop_run(loop) }
    func quit() { g_main_loop_quit(loop) }
    /// Runs for a time.
    func run(milliseconds: UInt32, _ context: OpaquePointer? = nil) {
        after(milliseconds, context) { [self] in quit() }
        run()
    }
}

/// Whether GLib calls this code.
var isInGLib: Bool { g_main_depth() > 0 }
