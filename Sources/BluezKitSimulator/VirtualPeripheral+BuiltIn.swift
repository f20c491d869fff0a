/// Predefined peripherals.
extension VirtualPeripheral {
    /// The UUID `bb1eNNNN-5d3b-4c6f-9a5e-000000000000`.
    public static func testUUID(_ number: UInt16) -> String {
        "bb1e\(Hex.handle(number))-5d3b-4c6f-9a5e-000000000000"
    }

    /// A heart-rate sensor, F0:F1:F2:00:00:01: Heart Rate (2A37 notify, 2A38 read, 2A39 control point), Battery, Device
    /// Information.
    ///
    /// ```swift
    /// let sensor = simulator.add(.heartRateSensor())
    /// sensor.notifyRepeatedly("2A37", every: .milliseconds(10)) { _ in [0, 72] }
    /// ```
    public static func heartRateSensor() -> VirtualPeripheral { heart("Heart Rate Sensor", maker: "BluezKit") }

    static func heart(_ name: String, maker: String) -> VirtualPeripheral {
        VirtualPeripheral(
            "F0:F1:F2:00:00:01", VirtualAdvertisement(localName: name, serviceUUIDs: ["180D", "180F"]),
            services: [
                VirtualService(
                    "180D",
                    [
                        VirtualCharacteristic("2A37", .notify, value: [0, 60]),
                        VirtualCharacteristic("2A38", .read, value: [1]),
                        VirtualCharacteristic(
                            "2A39", .write,
                            write: { if $0 != [1] { throw ATTFailure(0x80) } }),  // Control Point Not Supported
                    ]),
                VirtualService("180F", [VirtualCharacteristic("2A19", [.read, .notify], value: [100])]),
                VirtualService(
                    "180A",
                    [
                        VirtualCharacteristic("2A29", .read, value: Array(maker.utf8)),
                        VirtualCharacteristic("2A24", .read, value: Array("heart".utf8)),
                    ]),
            ], key: "heart")
    }

    /// A small typical sensor, `Sensor N`: one value, 2A56 in the service 1815, that can be read and notifies.
    /// - Parameter number: 1 to 99. Its address ends in it: F0:F1:F2:00:01:07.
    public static func sensor(_ number: Int) -> VirtualPeripheral { sensor(number, "Sensor \(number)") }

    static func sensor(_ number: Int, _ name: String) -> VirtualPeripheral {
        precondition((1...99).contains(number), "sensors have the numbers 1 to 99")
        return VirtualPeripheral(
            "F0:F1:F2:00:01:\(number < 10 ? "0" : "")\(number)",
            VirtualAdvertisement(localName: name, serviceUUIDs: ["1815"]),
            services: [VirtualService("1815", [VirtualCharacteristic("2A56", [.read, .notify], value: [0])])],
            key: "sensor\(number)")
    }

    /// A device with every kind of characteristic and descriptor, `Sample Device`, F0:F1:F2:00:00:02. Its UUIDs are
    /// those of ``testUUID(_:)``: the service 0001, which includes 0002, and the characteristics 0010 to 001C. They
    /// notify, indicate, are long or slow, need encryption or a confirmed pairing, or refuse everything.
    /// - Parameter slowRead: How long a read of the characteristic 001B takes.
    public static func sampleDevice(slowRead: Duration = .seconds(5)) -> VirtualPeripheral {
        sink("Sample Device", slowRead)
    }

    static func sink(_ name: String, _ slowRead: Duration) -> VirtualPeripheral {
        typealias C = VirtualCharacteristic
        let received = Counter()
        let owner = Owner()
        let refuse = ATTFailure(0x80)
        func c(
            _ number: UInt16, _ flags: C.Flags, _ value: [UInt8] = [], security: VirtualSecurity = .none
        ) -> C {
            C(testUUID(number), flags, value: value, security: security)
        }
        let included = VirtualService(
            testUUID(0x0002), isPrimary: false, [c(0x0020, .read, Array("included".utf8))])
        let main = VirtualService(
            testUUID(0x0001), includes: [testUUID(0x0002)],
            [
                c(0x0010, .read, Array("hello".utf8)),
                c(0x0011, [.read, .write], [0]),
                C(
                    testUUID(0x0012), .writeWithoutResponse,
                    write: {
                        received.add($0.count)
                        owner.event("written 0012 \(Hex.text($0))")
                    }),
                C(testUUID(0x001C), .read, read: { received.bytes }),
                c(0x0013, [.read, .notify], [0]),
                c(0x0014, [.read, .indicate], [0]),
                c(0x0015, [.read, .write], (0..<512).map { UInt8($0 & 255) }),
                c(0x0016, [.read, .write], Array("encrypted".utf8), security: .encrypted),
                c(0x0017, [.read, .write], Array("authenticated".utf8), security: .authenticated),
                C(
                    testUUID(0x0018), [.read, .write, .extendedProperties], value: Array("described".utf8),
                    descriptors: [
                        VirtualDescriptor("2900", value: [2, 0]),
                        VirtualDescriptor("2901", value: Array("A description".utf8), isWritable: true),
                        VirtualDescriptor("2904", value: [0x19, 0, 0, 0x27, 1, 0, 0]),
                        VirtualDescriptor(testUUID(0x0030), value: Array("own".utf8), isWritable: true),
                    ]),
                c(0x0019, [.read, .notify, .indicate], [0]),
                C(testUUID(0x001A), [.read, .write], read: { throw refuse }, write: { _ in throw refuse }),
                C(testUUID(0x001B), .read, value: Array("slow".utf8), delay: slowRead),
            ])
        let sink = VirtualPeripheral(
            "F0:F1:F2:00:00:02", VirtualAdvertisement(localName: name, serviceUUIDs: [testUUID(0x0001)]),
            services: [included, main], key: "sink")
        owner.peripheral = sink
        return sink
    }

    // holds: it is set before the peripheral is used
    private final class Owner: @unchecked Sendable {
        weak var peripheral: VirtualPeripheral?
        func event(_ text: String) { peripheral?.event(text) }
    }
}

/// Counts the bytes written to a characteristic.
private final class Counter: @unchecked Sendable {  // holds: used on the simulator's queue only, in read and write
    private var count: UInt32 = 0
    func add(_ more: Int) { count &+= UInt32(truncatingIfNeeded: more) }
    var bytes: [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: count >> (8 * $0)) } }
}
