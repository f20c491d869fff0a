import Foundation

/// A value that several threads use, under a lock that is held for a few instructions and never while foreign code
/// runs.
final class Protected<Value>: @unchecked Sendable {  // holds: `value` is touched only under `lock`
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) { self.value = value }

    func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        lock.lock()
        defer { lock.unlock() }
        return try body(&value)
    }
}
