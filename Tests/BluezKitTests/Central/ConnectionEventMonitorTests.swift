import BluezDBus
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// `registerForConnectionEvents`, where BlueZ's signals are not complete.
@Suite struct ConnectionEventMonitorTests {
    // BlueZ does not signal `Connected` of a link whose ATT socket it has before the kernel's event (3 of 16 runs of a
    // fast machine). The peer was never reported. `ServicesResolved` tells of the link as well.
    @Test("CE-1 a peer whose link BlueZ has not signalled is reported when its services are resolved, and when it ends")
    func unsignalled() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        let app = Central(OptionsWorld([BluezManagerOptionBusAddressKey: script.address.rawValue]))
        try await app.powerOn()
        app.manager.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180D")]])
        script.turn {}  // the bus queue has dealt with it
        let peer = DetachedCentral.identity(1), path = ScriptedBus.path(peer)
        func change(_ properties: [(String, Value)]) throws { try script.change(path, BlueZ.device, properties) }

        try change([("UUIDs", .strings(["0000180d-0000-1000-8000-00805f9b34fb"]))])  // of an advertisement: no link
        try await script.expectNoCall()
        try change([("ServicesResolved", .bool(true))])
        try await script.expect("GetAll", at: path).answer(
            .properties(
                ScriptedBus.properties(
                    peer, connected: true, [("UUIDs", .strings(["0000180d-0000-1000-8000-00805f9b34fb"]))])))
        try await app.next("the peer is reported") {
            if case .connectionEvent(.peerConnected, let found) = $0 {
                found.identifier == peer.identifier
            } else {
                nil
            }
        }
        // That goes with the service that it is of, not with the link.
        try script.remove(path, "org.bluez.Battery1")
        try await script.expectNoCall()
        await app.perform {}
        #expect(app.count { if case .connectionEvent(.peerDisconnected, _) = $0 { true } else { false } } == 0)
        try change([("Connected", .bool(false))])
        try await app.next("its end is reported") {
            if case .connectionEvent(.peerDisconnected, let found) = $0 {
                found.identifier == peer.identifier
            } else {
                nil
            }
        }
    }
}
