import BluezDBus
import Testing

@testable import BluezKit

/// A `Connect` that BlueZ does not answer: it has lost it, or has made the link without a word.
@Suite struct UnansweredConnectTests: ScriptedLink {
    let script: ScriptedBus
    let core: PeripheralCore

    init() async throws {
        (script, core) = try await Self.make {
            var timing = $0
            (timing.link.lostConnect, timing.link.lateEnd) = (.milliseconds(1), .seconds(3600))
            timing.link.heldLoss = .zero
            return timing
        }
    }

    /// The attempt of an app right after the end of a link, where BlueZ may lose it.
    private func connectAgain() async throws -> ScriptedBus.Call {
        let first = try await attempt(isBonded: false)
        try connected(true)
        try await wait { $0.isUp }
        first.answer()
        try connected(false)
        try await wait { $0.request == nil }
        return try await attempt(isBonded: false)
    }

    @Test("CN-2 a link that BlueZ does not signal is found when its services are resolved")
    func resolved() async throws {
        _ = try await attempt(isBonded: false)
        try script.change(path, BlueZ.device, [("ServicesResolved", .bool(true))])
        try await wait { $0.isUp }
        try await script.expectNoCall()
    }

    @Test("CN-2 an attempt that BlueZ may have lost is not called off if it has made the link")
    func madeSilently() async throws {
        let attempt = try await connectAgain()
        try await answerRead(connected: true)
        try await wait { $0.isUp }
        attempt.answer()
        try await script.expectNoCall()
        #expect(script.turn { core.isUp })
    }

    @Test("CN-2 an attempt that BlueZ has lost is called off when it says that there is no link")
    func lost() async throws {
        _ = try await connectAgain()
        try await answerRead(connected: false)
        try await script.expect("Disconnect", at: path).answer()
    }

    @Test("CN-2 the end of another program's link is noted, also while a scan has nothing to report of the device")
    func foreignEnd() async throws {
        let app = DetachedApp(on: script.address)
        try await eventually("Bluetooth is on for the app") { app.manager.state == .poweredOn }
        app.manager.scanForPeripherals(withServices: nil)
        let (path, found) = (ScriptedBus.path(app.device.identity), ScriptedBus.properties(app.device.identity))
        let objectPath = try #require(ObjectPath(path))
        // What comes before the scan has begun is not followed.
        try await eventually("the end is noted") {
            try script.add(path, BlueZ.device, found + [("RSSI", .int16(-50))])
            for isConnected in [true, false] {
                try script.change(path, BlueZ.device, [("Connected", .bool(isConnected))])
            }
            try await script.settle()
            return script.turn { script.central.store.hadLink(objectPath) }
        }
    }
}
