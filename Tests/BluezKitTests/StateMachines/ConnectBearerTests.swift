import BluezDBus
import Testing

@testable import BluezKit

@Suite struct ConnectBearerTests {
    private static let classic = BusError.remote(name: "org.bluez.Error.Failed", message: "br-connection-unknown")
    private static let plain = BusError.remote(name: "org.bluez.Error.Failed", message: "le-connection-timeout")
    private static let noObject = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownObject", message: "no such object")

    @Test("each wrong choice of BlueZ leads to the next way to ask for LE, and after the last one it is final")
    func ladder() {
        var bearer = ConnectBearer.any
        for next in [ConnectBearer.le, .preferred, .refused] {
            #expect(bearer.failed(Self.classic, isRandom: false) == .transient && bearer == next)
        }
        #expect(bearer.failed(Self.classic, isRandom: false) == .final && bearer == .refused)
    }

    @Test(
        "an error of another kind changes nothing, at any step", arguments: [ConnectBearer.any, .preferred, .refused])
    func others(_ step: ConnectBearer) {
        for isRandom in [false, true] {
            var bearer = step
            #expect(bearer.failed(Self.plain, isRandom: isRandom) == .transient && bearer == step)
            #expect(bearer.failed(Self.noObject, isRandom: isRandom) == .unknownDevice && bearer == step)
        }
    }

    @Test("an attempt by LE that was called off and never ends does not block the device")
    func calledOff() {
        let busy = BusError.remote(name: "org.bluez.Error.InProgress", message: "Operation already in progress")
        var bearer = ConnectBearer.le
        #expect(bearer.failed(busy, isRandom: false) == .transient && bearer == .preferred)
        #expect(bearer.failed(busy, isRandom: false) == .inProgress && bearer == .preferred)
    }

    @Test("a device with a random address is only tried by LE, whatever BlueZ says of classic Bluetooth")
    func random() {
        var bearer = ConnectBearer.any
        for _ in 0..<5 {
            // BlueZ has one text for any attempt that was called off.
            #expect(bearer.failed(.remote(name: "", message: "br-connection-canceled"), isRandom: true) == .transient)
            #expect(bearer.failed(ConnectFailure.forgotten, isRandom: true) == .unknownDevice && bearer == .any)
        }
    }

    @Test("a BlueZ without the interface for LE is asked in the older way")
    func oldBlueZ() {
        var bearer = ConnectBearer.le
        #expect(bearer.failed(Self.noObject, isRandom: false) == .transient && bearer == .preferred)
        #expect(bearer.failed(Self.noObject, isRandom: false) == .unknownDevice && bearer == .preferred)
    }
}
