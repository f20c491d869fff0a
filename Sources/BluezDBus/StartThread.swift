import Foundation

/// Starts a thread that `ps -T`, `top -H` and debuggers show by its name, of at most 15 bytes. (Foundation's `Thread`
/// drops on Linux a name that is set before it runs, and does not say that it could not be started.)
/// - Returns: Whether the process may have one more thread.
package func startThread(named name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
    assert(name.utf8.count < 16, "Linux has no room for the name \(name)")
    let work = Unmanaged.passRetained(ThreadWork(name: name, body: body))
    var thread = pthread_t()
    let result = pthread_create(
        &thread, nil,
        { work in
            // holds: ``startThread(named:_:)`` has passed it
            guard let work = work.map({ Unmanaged<ThreadWork>.fromOpaque($0).takeRetainedValue() }) else { return nil }
            Thread.current.name = work.name
            work.body()
            return nil
        }, work.toOpaque())
    guard result == 0 else {
        work.release()
        return false
    }
    pthread_detach(thread)
    return true
}

private final class ThreadWork: Sendable {
    let name: String
    let body: @Sendable () -> Void

    init(name: String, body: @escaping @Sendable () -> Void) { (self.name, self.body) = (name, body) }
}
