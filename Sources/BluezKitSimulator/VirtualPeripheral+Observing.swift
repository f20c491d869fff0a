/// A link of a ``VirtualPeripheral``, as the peripheral sees it.
public struct VirtualConnection: Hashable, Sendable {
    /// The address of the central.
    public let central: String
    /// The number of the simulator's adapter that the central is: 1 for `hci1`. Nil: it is a ``VirtualCentral``, or
    /// bluetoothd has crashed and the kernel still holds the link.
    public let adapter: Int?
    /// The ATT_MTU, 23 to 517 bytes.
    public let mtu: UInt16
    /// Whether the link is encrypted, as after pairing.
    public let isEncrypted: Bool
    /// The UUIDs of the characteristics that the central is subscribed to, in the order of their handles: `2a37`, or
    /// all 36 characters in lower case.
    public let subscriptions: [String]
}

/// A value that was written to a ``VirtualPeripheral``.
public struct VirtualWrite: Hashable, Sendable {
    /// The UUID of the characteristic: `2a39`, or all 36 characters in lower case.
    public let uuid: String
    /// The whole value.
    public let value: [UInt8]
    /// Whether it was written with response.
    public let isAnswered: Bool

    init(_ uuid: String, _ value: [UInt8], isAnswered: Bool) {
        (self.uuid, self.value, self.isAnswered) = (UUIDText.short(uuid), value, isAnswered)
    }
}

/// What was written to a peripheral, and who waits for it.
struct WriteRecord {
    static let limit = 1000

    private(set) var last: [VirtualWrite] = []
    private var streams: [Int: (uuid: String, values: AsyncStream<[UInt8]>.Continuation)] = [:]
    private var streamCount = 0

    mutating func add(_ write: VirtualWrite) {
        last.append(write)
        if last.count >= 2 * Self.limit { last.removeFirst(Self.limit) }
        for stream in streams.values where stream.uuid == write.uuid { stream.values.yield(write.value) }
    }

    /// - Returns: The stream's number.
    mutating func add(_ values: AsyncStream<[UInt8]>.Continuation, for uuid: String) -> Int {
        streamCount += 1
        streams[streamCount] = (UUIDText.short(UUIDText.full(uuid)), values)
        return streamCount
    }

    mutating func remove(_ stream: Int) { streams[stream] = nil }
}

/// What tests ask a peripheral.
extension VirtualPeripheral {
    /// Its links: who is connected, and subscribed to what.
    public var connections: [VirtualConnection] {
        sync {
            links.map { link in
                let subscriptions = table.services.flatMap(\.characteristics).filter(link.isSubscribed)
                let text = link.central?.linkAddress ?? ""
                return VirtualConnection(
                    central: String(text.prefix { $0 != "/" }), adapter: link.device?.adapter.controller.index,
                    mtu: link.mtu, isEncrypted: link.isEncrypted,
                    subscriptions: subscriptions.map { UUIDText.short($0.definition.uuid) })
            }
        }
    }

    /// What was written to its characteristics, without what it has refused: the last 1,000 writes, and possibly some
    /// more.
    public var writes: [VirtualWrite] { sync { written.last } }

    /// The values that are written to a characteristic from now on. It ends with the task that iterates it.
    /// - Parameter uuid: `2A39`, or all 36 characters.
    public func values(writtenTo uuid: String) -> AsyncStream<[UInt8]> {
        AsyncStream { continuation in
            let stream = sync { written.add(continuation, for: uuid) }
            continuation.onTermination = { [weak self] _ in
                guard let self else { return }
                sync { self.written.remove(stream) }
            }
        }
    }

    /// Waits for something that this peripheral sees: a link, a subscription, a write.
    ///
    /// ```swift
    /// try #require(await sensor.waitUntil { $0.isSubscribed(to: "2A37") })
    /// ```
    /// - Parameters:
    ///   - timeout: How long.
    ///   - condition: Called on the simulator's queue, after each event of a device. It must only look.
    /// - Returns: Whether that is so; false if the time limit was reached, or the peripheral is in no simulator.
    public func waitUntil(
        within timeout: Duration = .seconds(20), _ condition: @escaping @Sendable (VirtualPeripheral) -> Bool
    ) async -> Bool {
        let found: Bool? = await simulator?.wait(timeout) { [weak self] in
            self.map(condition) == true ? true : nil
        }
        return found ?? false
    }

    /// A central has written a value.
    func wrote(_ write: VirtualWrite) {
        written.add(write)
        simulator?.checkWaiters()
    }
}
