import BluezDBus
import Testing

@testable import BluezKit

@Suite struct DeviceTests {
    private let classic = BusError.remote(name: "org.bluez.Error.Failed", message: "br-connection-unknown")
    private let plain = BusError.remote(name: "org.bluez.Error.Failed", message: "le-connection-timeout")
    private let noObject = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownMethod", message: "no such interface")

    private func properties(_ rssi: Int16? = nil, name: String? = nil) -> DeviceProperties {
        var properties = DeviceProperties()
        (properties.rssiDBm, properties.name) = (rssi, name)
        return properties
    }

    @Test("a device is in BlueZ from when it is found until it is removed, and its link ends with its object")
    func presence() {
        let device = DetachedCentral.device()
        #expect(!device.isInBlueZ && device.scanGeneration == 0)
        var connected = properties(name: "Heart")
        (connected.isConnected, connected.areServicesResolved) = (true, true)
        device.found(connected, scan: 7)
        #expect(device.isInBlueZ && device.scanGeneration == 7 && device.properties.isConnected)
        device.removed()
        #expect(!device.isInBlueZ && !device.properties.isConnected && !device.properties.areServicesResolved)
        #expect(device.properties.name == "Heart")
        device.markPresent()
        #expect(device.isInBlueZ && !device.properties.isConnected)
    }

    @Test("the end of Bluetooth ends the link, and the end of the link also what was known of its services")
    func linkState() {
        var resolved = properties()
        resolved.areServicesResolved = true
        let device = DetachedCentral.device(1, resolved)
        device.markConnected()
        #expect(device.properties.isConnected)
        device.markLinkLost()
        #expect(!device.properties.isConnected && device.properties.areServicesResolved)
        device.markConnected()
        device.markDisconnected()
        #expect(!device.properties.isConnected && !device.properties.areServicesResolved)
    }

    @Test("a device is in range for some time after an advertisement, and not after a failed attempt")
    func range() {
        let device = DetachedCentral.device()
        #expect(!device.wasHeard(within: .seconds(1000)))
        device.heard()
        #expect(device.wasHeard(within: .seconds(1000)) && !device.wasHeard(within: .zero))
        device.clearLastSeen()
        #expect(!device.wasHeard(within: .seconds(1000)))
        device.heardEarlier(properties(), scan: 3)
        #expect(device.wasHeard(within: .seconds(1000)) && device.scanGeneration == 3)
        _ = device.attemptFailed(plain)
        #expect(!device.wasHeard(within: .seconds(1000)))
    }

    @Test("the last RSSI outlives the scan that it was measured in")
    func rssi() {
        let device = DetachedCentral.device(1, properties(-60))
        #expect(device.lastRSSI == nil)
        device.heard()
        #expect(device.lastRSSI == -60)
        device.found(properties(), scan: 2)
        device.heard()
        #expect(device.lastRSSI == -60 && device.properties.rssiDBm == nil)
        device.measured(-70)
        #expect(device.lastRSSI == -70)
    }

    @Test("a device's properties are those of BlueZ's messages")
    func messages() throws {
        let device = DetachedCentral.device()
        let store = DetachedCentral().role.store
        let changes = try read(.properties([("Name", .string("Heart")), ("RSSI", .int16(-50))])) {
            try device.apply(&$0, uuids: store.uuids, links: store.links)
        }
        #expect(changes == [.name, .advertisement] && device.properties.name == "Heart")
        try read(.strings(["RSSI"])) { try device.invalidate(&$0) }
        #expect(device.properties.rssiDBm == nil && device.properties.name == "Heart")
    }

    @Test("a device may get another path, and keeps its identity")
    func path() {
        let device = DetachedCentral.device(1)
        device.move(to: "/org/bluez/hci0/dev_2")
        #expect(device.path == "/org/bluez/hci0/dev_2" && device.identity == DetachedCentral.identity(1))
    }

    @Test("the last ten failed attempts are kept until there is a link, or none will succeed")
    func attempts() {
        let device = DetachedCentral.device()
        for number in 0..<25 {
            _ = device.attemptFailed(.remote(name: "org.bluez.Error.Failed", message: "\(number)"))
        }
        #expect(device.forgetAttempts().map(\.message) == (15..<25).map(String.init))
        #expect(device.forgetAttempts().isEmpty)
        _ = device.attemptFailed(plain)
        device.linkUp()
        #expect(device.properties.isConnected && device.forgetAttempts().isEmpty)
    }

    @Test("LE alone is tried where BlueZ chose classic Bluetooth, then preferred; when both have failed it is final")
    func bearers() {
        let device = DetachedCentral.device(1, isRandom: false)
        for _ in 0..<3 { #expect(device.attemptFailed(plain) == .transient) }
        #expect(
            (0..<5).map { _ in device.attemptFailed(classic) } == [.transient, .transient, .transient, .final, .final])
        #expect(device.attemptFailed(plain) == .transient)
        #expect(device.attemptFailed(classic) == .final)
        // The next connect begins with what BlueZ likes.
        #expect(device.forgetAttempts().count == 10)
        #expect(device.attemptFailed(classic) == .transient)
    }

    @Test("an interface that this BlueZ does not have is not taken for a device that it does not know")
    func noInterface() {
        let device = DetachedCentral.device(1, isRandom: false)
        #expect(device.attemptFailed(noObject) == .unknownDevice)
        #expect(device.attemptFailed(classic) == .transient)
        #expect(device.attemptFailed(noObject) == .transient, "it is asked for LE alone now")
        #expect(device.attemptFailed(noObject) == .unknownDevice, "and now in the old way")
        #expect(device.attemptFailed(classic) == .transient)
        #expect(device.attemptFailed(classic) == .final)
    }

    @Test("a device that BlueZ forgot in the middle of an attempt was paged, if its address is public")
    func forgotten() {
        #expect(DetachedCentral.device(1).attemptFailed(ConnectFailure.forgotten) == .unknownDevice)
        let device = DetachedCentral.device(1, isRandom: false)
        #expect(device.attemptFailed(ConnectFailure.forgotten) == .transient)
    }
}
