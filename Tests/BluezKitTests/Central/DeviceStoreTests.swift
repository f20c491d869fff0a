import BluezKitRestore
import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

/// What BlueZ answers about all of its devices.
@Suite struct DeviceStoreTests {
    private let near = DetachedCentral.identity(1)
    private let other = DetachedCentral.identity(2)

    private func stage() async throws -> (script: ScriptedBus, found: EventLog<String>) {
        let script = try await ScriptedBus {
            var timing = $0
            timing.daemon.busyRetry = .milliseconds(1)
            return timing
        }
        try await script.powerOn()
        return (script, EventLog<String>())
    }

    private func readAll(_ script: ScriptedBus, _ found: EventLog<String>, isWanted: ProtectedBox<Bool>) {
        script.turn {
            script.central.store.readAll { _, path, _ in
                found.append(path.rawValue)
            } isWanted: {
                isWanted.withLock { $0 }
            }
        }
    }

    @Test("devices of other adapters, attributes, and devices without an address are left out")
    func filters() async throws {
        let (script, found) = try await stage()
        readAll(script, found, isWanted: ProtectedBox(true))
        try await script.expect("GetManagedObjects", at: "/").answer(
            ScriptedBus.objects([
                (ScriptedBus.path(near, on: "/org/bluez/hci1"), ScriptedBus.properties(near)),
                (ScriptedBus.path(other) + "/service0001", ScriptedBus.properties(other)),
                ("/org/bluez/hci0/dev_F0_00_00_00_00_99", [("Name", .string("no address"))]),
                (ScriptedBus.path(near), ScriptedBus.properties(near)),
            ]))
        try await script.expectNoCall()
        #expect(found.all == [ScriptedBus.path(near)])
    }

    @Test("a question that the bus or bluetoothd was too busy for is repeated; another refusal is the answer")
    func busy() async throws {
        let (script, found) = try await stage()
        readAll(script, found, isWanted: ProtectedBox(true))
        for _ in 0..<3 { try await script.expect("GetManagedObjects").refuse(ScriptedBus.busy) }
        try await script.expect("GetManagedObjects").answer(
            ScriptedBus.objects([(ScriptedBus.path(near), ScriptedBus.properties(near))]))
        try await script.expectNoCall()
        #expect(found.all.count == 1)
        readAll(script, found, isWanted: ProtectedBox(true))
        try await script.expect("GetManagedObjects").refuse("org.freedesktop.DBus.Error.AccessDenied")
        try await script.expectNoCall()
        #expect(found.all.count == 1)
    }

    @Test("an answer about a device that is no longer wanted is not read")
    func late() async throws {
        let (script, found) = try await stage()
        let isWanted = ProtectedBox(true)
        readAll(script, found, isWanted: isWanted)
        let question = try await script.expect("GetManagedObjects")
        isWanted.withLock { $0 = false }
        question.answer(try ScriptedBus.objects([(ScriptedBus.path(near), ScriptedBus.properties(near))]))
        try await script.expectNoCall()
        #expect(found.all.isEmpty)
    }

    @Test("a thread that waits for all devices gets the requested ones, and none if BlueZ refuses")
    func blocking() async throws {
        let (script, found) = try await stage()
        for isRefused in [false, true] {
            let store = script.central.store
            // holds: the call is for any thread but the bus queue's
            nonisolated(unsafe) let shared = store
            DispatchQueue.global().async {
                let devices = shared.knownDevices(.connected)
                found.append(devices.map(\.identity.addressText).joined(separator: " "))
            }
            let question = try await script.expect("GetManagedObjects")
            if isRefused {
                question.refuse()
            } else {
                question.answer(
                    try ScriptedBus.objects([
                        (ScriptedBus.path(near), ScriptedBus.properties(near)),
                        (ScriptedBus.path(other), ScriptedBus.properties(other, connected: true)),
                    ]))
            }
            let expected = isRefused ? "" : other.addressText
            try await found.next("devices") { $0 == expected ? true : nil }
        }
    }

    /// An app wants a device that BlueZ does not have where it is looked for.
    private func want(_ identity: DeviceIdentity, _ script: ScriptedBus, _ manager: CentralManagerCore)
        async throws -> PeripheralCore
    {
        let core = PeripheralCore(identity: identity, manager: manager)
        script.turn { script.central.connect(core, connectionID: core.begin(), .test()) }
        try await script.expect("GetAll", at: ScriptedBus.path(identity)).refuse(ScriptedBus.noObject)
        try await script.settle()
        return core
    }

    private static let routine: [String: [Value]] = [
        "RegisterAgent": [], "Get": [.variant(.bool(true))], "Introspect": [.string("<node/>")],
        "SetDiscoveryFilter": [], "StartDiscovery": [], "StopDiscovery": [],
    ]
    private let hidden = "/org/bluez/hci0/dev_4A_00_00_00_00_01"

    @Test("devices that BlueZ may have under another address are looked for by one question, and found there")
    func follows() async throws {
        let (script, _) = try await stage()
        script.answerRoutinely(Self.routine)
        let manager = script.manager()
        var cores = [try await want(near, script, manager)]
        let question = try await script.expect("GetManagedObjects")
        cores.append(try await want(other, script, manager))
        question.answer(try ScriptedBus.objects([(hidden, ScriptedBus.properties(near))]))
        try await script.expect("GetAll", at: hidden).answer(
            .properties(ScriptedBus.properties(near, connected: true)))
        // The other one is asked about once more: it may have come meanwhile.
        try await script.expect("GetAll", at: ScriptedBus.path(other)).refuse(ScriptedBus.noObject)
        try await script.expectNoCall()
        script.turn {
            #expect(cores[0].isUp && cores[0].device?.path.rawValue == hidden)
            #expect(cores[1].device?.connection?.phase == .looking)
        }
    }

    @Test("an answer about where devices are is of no use to a connect that was cancelled meanwhile")
    func followsTooLate() async throws {
        let (script, _) = try await stage()
        script.answerRoutinely(Self.routine)
        let core = try await want(near, script, script.manager())
        let question = try await script.expect("GetManagedObjects")
        script.turn { script.central.cancel(core) }
        question.answer(try ScriptedBus.objects([(hidden, ScriptedBus.properties(near))]))
        try await script.expectNoCall()
        #expect(script.turn { script.central.connected.isEmpty })
    }

    @Test("if BlueZ refuses to list its devices, the requested device is searched for by listening")
    func followsRefused() async throws {
        let (script, _) = try await stage()
        script.answerRoutinely(Self.routine)
        let core = try await want(near, script, script.manager())
        try await script.expect("GetManagedObjects").refuse()
        try await script.expect("GetAll", at: ScriptedBus.path(near)).refuse(ScriptedBus.noObject)
        try await script.expectNoCall()
        #expect(script.turn { core.device?.connection?.phase } == .looking)
    }
}
