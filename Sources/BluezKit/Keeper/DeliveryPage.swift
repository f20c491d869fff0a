import CBluezL2CAP
import Glibc
import Synchronization

/// How far an app has come with the events of one manager, in memory that it shares with its keeper: what it writes is
/// there when it is killed in the next instruction.
final class DeliveryPage: @unchecked Sendable {  // holds: constants, and atomic counters
    private static let size = 4096

    /// To be passed on. Closed with this.
    let descriptor: Int32
    private let counters: UnsafeMutablePointer<Atomic<UInt64>>

    /// A new one.
    convenience init?() { self.init(descriptor: cl2cap_shared_memory(Self.size)) }

    /// - Parameter descriptor: Taken over.
    init?(descriptor: Int32) {
        guard descriptor >= 0 else { return nil }
        self.descriptor = descriptor
        var found = stat()
        // A shorter one would end the process that reads it.
        guard fstat(descriptor, &found) == 0, found.st_size >= Self.size,
            let page = mmap(nil, Self.size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), page != MAP_FAILED
        else {
            close(descriptor)
            return nil
        }
        counters = page.bindMemory(to: Atomic<UInt64>.self, capacity: 2)
    }

    deinit {
        munmap(counters, Self.size)
        close(descriptor)
    }

    /// The event whose delivery has begun last.
    var begun: UInt64 {
        get { counters[0].load(ordering: .acquiring) }
        set { counters[0].store(newValue, ordering: .releasing) }
    }

    /// The event whose delivery has ended last: its callback has returned.
    var delivered: UInt64 {
        get { counters[1].load(ordering: .acquiring) }
        set { counters[1].store(newValue, ordering: .releasing) }
    }
}
