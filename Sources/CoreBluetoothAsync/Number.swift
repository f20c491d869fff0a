import Synchronization

/// Numbers for operations and attributes, each of them used once.
enum Number {
    private static let last = Mutex<UInt64>(0)

    static func next() -> UInt64 {
        last.withLock { last in
            last += 1
            return last
        }
    }
}

/// What is given to another isolation domain as a whole, for closures that run once.
final class Parcel<Content>: Sendable {
    private let content: Mutex<Content?>

    init(_ content: sending Content) { self.content = Mutex(content) }

    func open() -> sending Content? {
        content.withLock { content in
            let taken = content
            content = nil
            return taken
        }
    }
}
