import BluezKitRestore
import BluezKitSimulator
import Dispatch
import Foundation
import Testing

@testable import BluezKit

/// What an app's next process does not claim, with the keeper and both processes in this one.
@Suite struct KeeperClaimTests {
    // The links of a manager that was not claimed ended beside the change of its file. A process that came between the
    // two, to claim it after all, restored a connected peripheral, and heard that it was disconnected. Now the file
    // changes first.
    @Test("R-15 RS-6 what is not claimed ends when its file says so, and not before")
    func fileFirst() async throws {
        let (world, directory, host) = (try await SimulatedWorld(), try TemporaryDirectory(), KeeperHost())
        func hello(_ identifier: String) -> KeeperHello {
            var hello = KeeperHello(
                role: .central, statePath: directory.file(identifier), app: "", address: world.simulator.address,
                adapter: nil, relaunch: .never)
            hello.central = .init(claims: .init(directory: StateDirectory(path: directory.path), seconds: 0))
            return hello
        }
        func send(_ frame: Frame) throws -> KeeperSocket {
            let (app, keeper) = try #require(KeeperSocket.pair())
            host.take(keeper)
            try #require(app.sendAll(frame))
            return app
        }
        /// What the keeper has, in the words of its status.
        func hosted() async throws -> [KeeperStatus] {
            let socket = try send(Frame(kind: .status, body: Data()))
            return try await Task.detached {
                var reader = FrameReader()
                defer { reader.end() }
                while case .bytes = socket.receive(into: &reader, waits: true) {
                    while let frame = try reader.next() {
                        guard frame.kind == .answer else { continue }
                        return try BorderFormat.decode([KeeperStatus].self, from: frame.body)
                    }
                }
                return []
            }.value
        }
        let session = Session.shared(hello("left").session)
        func onBus<Value: Sendable>(_ body: @escaping @Sendable () -> Value) async -> Value {
            await withCheckedContinuation { continuation in session.run { continuation.resume(returning: body()) } }
        }

        let left = try send(.message(.hello, hello("left")))
        try await eventually("Bluetooth is on") { await onBus { session.adapter.state == .poweredOn } }
        left.shutDown()
        try await eventually("its app has gone") {
            let all = try await hosted()
            return all.count == 1 && all.allSatisfy { $0.app == nil }
        }
        let record = Snapshot.Peripheral(
            identifier: UUID(), name: nil, adapter: nil, state: .connected, isBonded: false,
            options: ConnectRequest(options: [:]), services: nil)
        var snapshot = Snapshot(
            role: .central, identifier: "left", app: "", boot: StateDirectory.boot, saved: Date())
        snapshot.bluetooth = await onBus { session.adapter.stackGeneration }
        snapshot.peripherals = [record]
        let store = try SnapshotStore(StateDirectory(path: directory.path), .central, "left")
        try store.save(snapshot)
        store.close()
        func state() throws -> Snapshot.Peripheral.State? {
            let content = try #require(try SnapshotStore.content(of: store.path))
            return try Snapshot(fileContent: content).peripherals[record.identifier]?.state
        }

        // A slow disk.
        let gate = DispatchSemaphore(value: 0)
        defer { gate.signal() }
        DispatchQueue.files.async { _ = gate.wait(timeout: .now() + 10 * world_deadline) }
        let again = try send(.message(.hello, hello("again")))
        try await eventually("the keeper leaves it") {
            try await hosted().map(\.statePath) == [directory.file("again")]
        }
        let working = await onBus { session.central.managers.count }
        #expect(working == 2, "its work continues until the file says so")
        #expect(try state() == .connected)
        gate.signal()
        try await eventually("its work ends") { await onBus { session.central.managers.count } == 1 }
        #expect(try state() == .connecting)
        try #require(again.sendAll(Frame(kind: .release, body: Data())))
        try await eventually("nothing is left") { host.count == 0 }
        withExtendedLifetime(world) {}
    }
}
