import BluezKitSimulator
import Dispatch
import Foundation

/// Two heart-rate sensors whose wearers are running, on a private bus with a simulated BlueZ.
public final class SimulatedSensors: Sendable {
    private let simulator: Simulator
    private let sensors: [String: VirtualPeripheral]

    /// For `DBUS_SYSTEM_BUS_ADDRESS`.
    public var busAddress: String { simulator.address }

    public init() async throws {
        simulator = try await Simulator(timing: .real)
        var sensors: [String: VirtualPeripheral] = [:]
        for (number, (key, name)) in [("strap", "Pulse Strap"), ("bike", "Gym Bike")].enumerated() {
            let sensor = VirtualPeripheral(
                "F0:F1:F2:00:02:0\(number)", VirtualAdvertisement(localName: name, serviceUUIDs: ["180D"]),
                services: [
                    VirtualService(
                        "180D",
                        [
                            VirtualCharacteristic("2A37", .notify, value: [0, 60]),
                            VirtualCharacteristic("2A38", .read, value: [1]),
                        ]),
                    VirtualService(
                        "180F", [VirtualCharacteristic("2A19", [.read, .notify], value: [UInt8(81 - 20 * number)])]),
                ], key: key)
            sensors[key] = sensor
            sensor.rssi = Int16(-52 - 19 * number)
            simulator.add(sensor)
            sensor.notifyRepeatedly("2A37", every: .milliseconds(600)) {
                Self.measurement($0, middle: 128 - 30 * number)
            }
        }
        self.sensors = sensors
    }

    /// Starts them, and waits until they are there.
    public static func start() throws -> SimulatedSensors {
        let (result, started) = (Result(), DispatchSemaphore(value: 0))
        Task {
            do { result.value = .success(try await SimulatedSensors()) } catch { result.value = .failure(error) }
            started.signal()
        }
        started.wait()
        return try result.value.get()
    }

    // holds: the task writes it before it signals, the caller reads it after that
    private final class Result: @unchecked Sendable {
        var value = Swift.Result<SimulatedSensors, any Error>.failure(CancellationError())
    }

    /// Carries out a line: `strap vanish`, `strap return`, `bike advertise on`, `bike advertise off`, `power off` or
    /// `power on`.
    /// - Returns: Whether it is one of these.
    public func control(_ line: String) -> Bool {
        let words = line.split(separator: " ").map(String.init)
        if words.first == "power" {
            simulator.setPowered(words.last == "on")
            return true
        }
        guard let sensor = words.first.flatMap({ sensors[$0] }) else { return false }
        switch Array(words.dropFirst()) {
        case ["vanish"]: sensor.vanish()
        case ["return"]: sensor.comeBack()
        case ["advertise", "on"]: sensor.advertise(true)
        case ["advertise", "off"]: sensor.advertise(false)
        default: return false
        }
        return true
    }

    /// A value of 2A37 with rate, skin contact, one RR interval, and the energy with every tenth.
    private static func measurement(_ beat: Int, middle: Int) -> [UInt8] {
        let time = Double(beat)
        let rate = Double(middle) + 14 * sin(time / 17) + 5 * sin(time / 4.3) + 2 * sin(time * 1.7)
        // From beat to beat the interval varies more than the rate.
        let interval = UInt16(60 / rate * 1024 * (1 + 0.035 * sin(time * 2.1) + 0.02 * sin(time * 0.9)))
        var value: [UInt8] = [beat % 10 == 9 ? 0x1E : 0x16, UInt8(rate)]
        if beat % 10 == 9 { value += bytes(UInt16(truncatingIfNeeded: beat / 2)) }
        return value + bytes(interval)
    }

    private static func bytes(_ number: UInt16) -> [UInt8] { [UInt8(number & 255), UInt8(number >> 8)] }
}
