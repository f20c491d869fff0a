import BluezDBus
import BluezKitRestore
import BluezKitSimulator
import Dispatch
import Foundation
import Testing

@testable import BluezKit

/// The app's side of a keeper, with keepers that do what no real one does.
@Suite struct KeptManagerTests {
    /// The other ends of the connections that a manager makes.
    private final class Keepers: Sendable {
        private let sockets = ProtectedBox<[KeeperSocket]>([])
        private let gate = DispatchSemaphore(value: 0)
        private let isGated = ProtectedBox(false)

        var count: Int { sockets.withLock { $0.count } }

        /// The next connections wait until they are let through.
        func stop() { isGated.withLock { $0 = true } }
        func letOne() { gate.signal() }

        @Sendable func connect() -> KeeperSocket? {
            if isGated.withLock({ $0 }) { gate.wait() }
            guard let (app, keeper) = KeeperSocket.pair() else { return nil }
            sockets.withLock { $0.append(keeper) }
            return app
        }

        /// As real ones do after a release.
        func end() { for socket in sockets.withLock({ $0 }) { socket.shutDown() } }

        func next(_ number: Int) async throws -> KeeperSocket {
            try await eventually("connection \(number + 1)") { self.count > number }
            return sockets.withLock { $0[number] }
        }
    }

    private let keepers = Keepers()
    private let events = EventLog<String>()

    private func manager(
        _ directory: TemporaryDirectory, on address: String = "unix:path=/nowhere", patience: Duration = .seconds(10)
    ) -> KeptCentral {
        var hello = KeeperHello(
            role: .central, statePath: directory.path + "/central-app.json", app: "app", address: address,
            adapter: nil, relaunch: .never)
        hello.central = .init()
        let manager = KeptCentral(
            hello, side: CentralSide(), place: DispatchQueue(label: "test.app"), timing: BlueZTiming(),
            patience: patience, connect: keepers.connect
        ) { [events] in
            for event in $0 {
                switch event {
                case .state(let state, _, _, _): events.append("state \(state.value.rawValue)")
                case .value(let bytes, _, _, _): events.append("value \(bytes.count)")
                default: break
                }
            }
        }
        manager.start()
        return manager
    }

    private func event(_ text: String) async throws { try await events.next(text) { $0 == text ? true : nil } }

    private func welcome(_ socket: KeeperSocket) throws -> DeliveryPage {
        let page = try #require(DeliveryPage())
        try #require(socket.sendAll(Frame(kind: .welcome, body: Data(), descriptors: [page.descriptor])))
        return page
    }

    private func value(_ number: UInt64, bytes: Int) throws -> Frame {
        let identity = DeviceIdentity(address: 1, isRandom: false)
        return try .event(number, CentralEvent.value(Data(count: bytes), .none, identity, ConnectionID(request: 1)))
    }

    /// What the manager sends until it has no more to say, by kind.
    private func kinds(_ socket: KeeperSocket, until last: Frame.Kind) async throws -> [Frame.Kind] {
        try await Task.detached {
            var (reader, kinds) = (FrameReader(), [Frame.Kind]())
            defer { reader.end() }
            while kinds.last != last, case .bytes = socket.receive(into: &reader, waits: true) {
                while let frame = try reader.next() { kinds.append(frame.kind) }
            }
            return kinds
        }.value
    }

    @Test("a keeper that is there and never takes the manager is given up: the manager continues in the app's process")
    func silent() async throws {
        let (world, directory) = (try await SimulatedWorld(), try TemporaryDirectory())
        let manager = manager(directory, on: world.simulator.address, patience: .milliseconds(50))
        try await event("state \(CBManagerState.poweredOn.rawValue)")
        #expect(keepers.count == 4)
        manager.release()
        keepers.end()
    }

    @Test("RS-16 a manager that is released while a keeper is looked for: the next one hears of it")
    func releasedWhileLooking() async throws {
        let directory = try TemporaryDirectory()
        let manager = manager(directory)
        let first = try await keepers.next(0)
        let page = try welcome(first)
        #expect(first.sendAll(try value(1, bytes: 1)))
        try await event("value 1")
        keepers.stop()
        first.shutDown()
        try await event("state \(CBManagerState.resetting.rawValue)")
        manager.release()
        keepers.letOne()
        let kinds = try await kinds(try await keepers.next(1), until: .release)
        #expect(kinds == [.hello, .release])
        #expect(page.delivered == 1)
    }

    @Test("what comes before something that is no frame is delivered, and the connection has ended before the next one")
    func unreadable() async throws {
        let directory = try TemporaryDirectory()
        let manager = manager(directory)
        let first = try await keepers.next(0)
        let page = try welcome(first)
        let bytes = try value(1, bytes: 7).bytes + Data([0, 0, 0, 0, 99, 0])
        #expect(first.send(bytes[...], waits: true) == .bytes(bytes.count))
        try await event("value 7")
        try await event("state \(CBManagerState.resetting.rawValue)")
        _ = try await keepers.next(1)
        var reader = FrameReader()
        while case .bytes = first.receive(into: &reader, waits: false) {}
        #expect(first.receive(into: &reader, waits: false) == .ended && page.delivered == 1)
        manager.release()
        keepers.end()
    }

    @Test("descriptors that no keeper sends are closed")
    func strayDescriptors() async throws {
        let directory = try TemporaryDirectory()
        let manager = manager(directory)
        let first = try await keepers.next(0)
        let page = try welcome(first)
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        var frame = try value(1, bytes: 1)
        frame.descriptors = [ends[1]]
        #expect(first.sendAll(frame))
        close(ends[1])
        // Not before the app's side has closed its copy.
        let reading = ends[0]
        let count = await Task.detached {
            var byte: UInt8 = 0
            return read(reading, &byte, 1)
        }.value
        #expect(count == 0)
        close(reading)
        try await event("value 1")
        #expect(page.delivered <= 1)
        manager.release()
        keepers.end()
    }

    @Test("all managers share two threads, which end with the last of them")
    func threads() async throws {
        let directory = try TemporaryDirectory()
        let managers = (0..<8).map { _ in manager(directory) }
        var pages: [DeliveryPage] = []
        for number in managers.indices {
            let keeper = try await keepers.next(number)
            pages.append(try welcome(keeper))
            #expect(keeper.sendAll(try value(1, bytes: number)))
        }
        try await eventually("all have come") { events.all.count == managers.count }
        try await eventually("the threads that have begun have ended") { Self.threads <= 2 }
        for manager in managers { manager.release() }
        keepers.end()
        try await eventually("no thread is left") { Self.threads == 0 }
    }

    /// How many of them there are in this process.
    private static var threads: Int {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
        return tasks.count {
            FileManager.default.contents(atPath: "/proc/self/task/\($0)/comm") == Data("bluezkit.keeper\n".utf8)
        }
    }
}
