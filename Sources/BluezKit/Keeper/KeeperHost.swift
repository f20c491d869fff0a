import BluezDBus
import BluezKitRestore
import CBluezL2CAP
import Dispatch
import Foundation

/// Hosts the cores of managers for the apps of one user, and continues with them when an app has died.
package final class KeeperHost: @unchecked Sendable {  // holds: confined to `queue`, but for constants
    private let queue = DispatchQueue(label: "bluezkit.keeper.host")
    private let limits: EventLog.Limits
    /// By role and state file.
    private var managers: [String: HostedCentral] = [:]
    /// Those that have not said yet what they are.
    private var strangers: [ObjectIdentifier: KeeperConnection] = [:]

    package convenience init() { self.init(limits: EventLog.Limits()) }

    init(limits: EventLog.Limits) { self.limits = limits }

    /// Takes a connection of an app. Any thread.
    func take(_ socket: KeeperSocket) { queue.async { [self] in greet(socket) } }

    /// Takes the connections to a socket, as long as the process lasts. Any thread.
    package func listen(on descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        // On the queue that finds it idle: none that it has taken is lost if that ends the process.
        watch(descriptor) { [self] in
            while case let accepted = cl2cap_accept(descriptor), accepted >= 0 {
                greet(KeeperSocket(descriptor: accepted))
            }
        }
    }

    /// Calls `body`, on its queue, when there is something to read, as long as the process lasts. Any thread.
    func watch(_ descriptor: Int32, _ body: @escaping @Sendable () -> Void) {
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        // It keeps itself.
        source.setEventHandler { withExtendedLifetime(source) { body() } }
        source.activate()
    }

    /// How many managers it hosts. Any thread but its own.
    var count: Int { queue.sync { managers.count } }

    /// Calls `body` when there has been no manager and no app for this long. Any thread; once.
    package func whenIdle(for time: Duration, _ body: @escaping @Sendable () -> Void) {
        queue.async { [self] in
            idle = (time, body)
            idleChanged()
        }
    }

    private var idle: (time: Duration, body: @Sendable () -> Void)?
    /// Counts what has made it busy.
    private var uses = 0

    private func idleChanged() {
        uses += 1
        guard let idle, managers.isEmpty, strangers.isEmpty else { return }
        let uses = uses
        queue.asyncAfter(deadline: .now().later(by: idle.time)) { [weak self] in
            if self?.uses == uses { idle.body() }
        }
    }

    private func greet(_ socket: KeeperSocket) {
        guard socket.peerUser == geteuid() else {
            return Log.warning("a program of another user has asked for the keeper, and is refused")
        }
        let connection = KeeperConnection(socket, on: queue)
        strangers[ObjectIdentifier(connection)] = connection
        uses += 1
        connection.onEnd = { [weak self, weak connection] in
            if let connection { self?.strangers[ObjectIdentifier(connection)] = nil }
            self?.idleChanged()
        }
        connection.onFrame = { [weak self, weak connection] frame in
            defer { frame.closeDescriptors() }
            guard let self, let connection else { return }
            strangers[ObjectIdentifier(connection)] = nil
            do {
                guard frame.kind == .hello else { throw FrameReader.Failure.malformed }
                try host(BorderFormat.decode(KeeperHello.self, from: frame.body), connection)
            } catch { refuse(connection, "it does not understand the app: \(error)") }
        }
        connection.start()
        connection.send(.greeting)
    }

    private func host(_ hello: KeeperHello, _ connection: KeeperConnection) {
        let name = "\(hello.role.rawValue) \(hello.statePath)"
        managers[name]?.readAll()
        if let known = managers[name] {
            guard !known.hasApp else { return refuse(connection, "another process of the app has this manager") }
            if known.isFor(hello), !hello.resumes { return known.handOver(to: connection, hello) }
            known.end()
        }
        guard let new = HostedCentral(hello, on: queue, limits: limits) else {
            return refuse(connection, "there is no memory to share with the app")
        }
        managers[name] = new
        new.onEnd = { [weak self, weak new] in
            guard let self, managers[name] === new else { return }
            managers[name] = nil
            idleChanged()
        }
        new.begin(with: connection)
    }

    private func refuse(_ connection: KeeperConnection, _ reason: String) {
        connection.send(Frame(kind: .refusal, body: Data(reason.utf8)))
        connection.end()
    }
}
