import DBus
import Glibc

/// A hash table by object path that is asked with a C string in a message, so that a signal nobody waits for is
/// dropped without making a `String` of its path.
struct PathTable<Value> {
    private struct Slot {
        let path: String
        var value: Value
    }

    // Nearly always one slot; an array costs nothing more to look up.
    private var slots: [UInt64: [Slot]] = [:]
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

    private static func hash(_ path: UnsafePointer<CChar>, _ length: Int) -> UInt64 {
        // FNV-1a. Paths come from bluetoothd; whoever could choose them to collide could do worse.
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325
        for i in 0..<length { hash = (hash ^ UInt64(UInt8(bitPattern: path[i]))) &* 0x100_0000_01b3 }
        return hash
    }
}

extension PathTable {
    var values: [Value] { slots.values.flatMap { $0.map(\.value) } }

    mutating func removeAll() { self = PathTable() }

    mutating func removeAll(where predicate: (Value) -> Bool) {
        for (key, bucket) in slots where bucket.contains(where: { predicate($0.value) }) {
            let kept = bucket.filter { !predicate($0.value) }
            count -= bucket.count - kept.count
            slots[key] = kept.isEmpty ? nil : kept
        }
    }
}
