import Foundation

/// A value that several threads use, under a lock. No code of the app's runs while it is held: the last reference to an
/// object of the app's is never released under it. Held briefly, except by `IntentBook`, which encodes and
/// writes its file under it, so that changes reach the disk in their order.
package final class Protected<Value>: @unchecked Sendable {  // holds: `value` is touched only under `lock`
    private let lock = NSLock()
    private var value: Value
    private let isFirst: Bool

    /// - Parameter isFirst: Whether one that is not may be taken while this one is held. None may while another one is.
    package init(_ value: Value, isFirst: Bool = false) { (self.value, self.isFirst) = (value, isFirst) }

    package func withLock<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        #if DEBUG
        let held = LockOrder.held
        let own: LockOrder = isFirst ? .first : .last
        precondition(held < own, "locks are taken in another order than that of all")
        LockOrder.held = own
        defer { LockOrder.held = held }
        #endif
        lock.lock()
        defer { lock.unlock() }
        return try body(&value)
    }
}

#if DEBUG
/// Which kind of lock a thread holds. Only while a book's is held another one is taken, so no two threads ever wait for
/// each other.
enum LockOrder: Int, Comparable {
    case none, first, last

    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        return key
    }()

    /// By this thread.
    static var held: LockOrder {
        get { LockOrder(rawValue: Int(bitPattern: pthread_getspecific(key))) ?? .none }
        set { pthread_setspecific(key, UnsafeRawPointer(bitPattern: newValue.rawValue)) }
    }

    static func < (a: LockOrder, b: LockOrder) -> Bool { a.rawValue < b.rawValue }
}
#endif
