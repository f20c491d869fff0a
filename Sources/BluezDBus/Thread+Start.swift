package import Foundation

extension Thread {
    /// Starts a thread that `ps -T`, `top -H` and debuggers show by its name, of at most 15 bytes. (Foundation on Linux drops longer
    /// names, and those that are set before the thread runs.)
    package static func start(named name: String, _ body: @escaping @Sendable () -> Void) {
        assert(name.utf8.count < 16, "Linux has no room for the name \(name)")
        Thread {
            Thread.current.name = name
            body()
        }.start()
    }
}
