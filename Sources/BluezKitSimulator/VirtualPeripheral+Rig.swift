/// The devices of the virtual machine with a real bluetoothd (`Tests/Rig`), for tests that run in both worlds, and for
/// the control lines that name them.
extension VirtualPeripheral {
    /// `Rig Heart`: ``heartRateSensor()``.
    package static func rigHeart() -> VirtualPeripheral { heart("Rig Heart", maker: "BluezKit rig") }

    /// `Rig Sensor N`: ``sensor(_:)``.
    package static func rigSensor(_ number: Int) -> VirtualPeripheral { sensor(number, "Rig Sensor \(number)") }

    /// `Rig Sink`: ``sampleDevice(slowRead:)``.
    package static func rigSink(slowRead: Duration = .seconds(5)) -> VirtualPeripheral { sink("Rig Sink", slowRead) }

    /// A device with L2CAP channels, `Rig CoC`, F0:F1:F2:00:00:03. Their PSM, 0x0080, is in the characteristics 0041
    /// and ABDD3056-28FA-441D-A470-55A75A52553A; who serves it is up to the caller. It does not advertise that it is
    /// discoverable, as sensors that wait for their host do not.
    package static func rigCoC() -> VirtualPeripheral {
        VirtualPeripheral(
            "F0:F1:F2:00:00:03",
            VirtualAdvertisement(localName: "Rig CoC", serviceUUIDs: [testUUID(0x0040)], flags: 0x04),
            services: [
                VirtualService(
                    testUUID(0x0040),
                    [
                        VirtualCharacteristic(testUUID(0x0041), .read, value: [0x80, 0]),
                        VirtualCharacteristic("abdd3056-28fa-441d-a470-55a75a52553a", .read, value: [0x80, 0]),
                    ])
            ], key: "coc")
    }

    /// The service that tests of Service Changed add and remove: 0003, with 0021 (read, notify).
    package static var changingService: VirtualService {
        VirtualService(
            testUUID(0x0003),
            [
                VirtualCharacteristic(testUUID(0x0021), [.read, .notify], value: Array("new".utf8)),
                // Never answered.
                VirtualCharacteristic(testUUID(0x0022), .read, delay: .seconds(3600)),
            ])
    }

    /// What comes in its place: 0004, with 0023 (read).
    static var replacingService: VirtualService {
        VirtualService(testUUID(0x0004), [VirtualCharacteristic(testUUID(0x0023), .read, value: Array("newer".utf8))])
    }
}
