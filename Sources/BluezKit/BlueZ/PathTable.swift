import BluezDBus
import Glibc

/// A hash table by object path that is queried with a C string from a message, so that an unwanted signal is dropped
/// without creating a `String` for its path.
struct PathTable<Value> {
    private struct Slot {
        let path: String
        var value: Value
    }

    // Nearly always one slot; an array is just as fast.
    private var slots: [Int: [Slot]] = [:]
    private(set) var count = 0

    subscript(path: UnsafePointer<CChar>) -> Value? { find(path, strlen(path)) }

    subscript(path: String) -> Value? {
        get { path.withCString { find($0, path.utf8.count) } }
        set {
            let key = path.withCString { Self.hash($0, path.utf8.count) }
            var bucket = slots[key] ?? []
            let index = bucket.firstIndex { $0.path == path }
            switch (newValue, index) {
            case (let value?, let index?): bucket[index].value = value
            case (let value?, nil):
                bucket.append(Slot(path: path, value: value))
                count += 1
            case (nil, let index?):
                bucket.remove(at: index)
                count -= 1
            case (nil, nil): return
            }
            slots[key] = bucket.isEmpty ? nil : bucket
        }
    }

    /// The value for the first `length` bytes of `path`.
    func find(_ path: UnsafePointer<CChar>, _ length: Int) -> Value? {
        guard let bucket = slots[Self.hash(path, length)] else { return nil }
        for slot in bucket where slot.path.utf8.count == length {
            if slot.path.withCString({ memcmp($0, path, length) }) == 0 { return slot.value }
        }
        return nil
    }

    /// Seeded differently in each process, because UUIDs, which are keys as well, come from other devices.
    static func hash(_ path: UnsafePointer<CChar>, _ length: Int) -> Int {
        var hasher = Hasher()
        hasher.combine(bytes: UnsafeRawBufferPointer(start: path, count: length))
        return hasher.finalize()
    }
}

extension PathTable {
    var values: [Value] { slots.values.flatMap { $0.map(\.value) } }

    mutating func removeAll() { self = PathTable() }
}
