import BluezDBus
import BluezKitRestore
import CBluezL2CAP
import Dispatch
import Foundation

/// Hosts the cores of managers for the apps of one user, and continues with them when an app has died.
package final class KeeperHost: @unchecked Sendable {  // holds: confined to `queue`, but for constants
    private let queue = DispatchQueue(label: "bluezkit.keeper.host")
    /// By role and state file.
    private var managers: [String: any HostedApp] = [:]
    /// Those that have not said yet what they are.
    private var strangers: [ObjectIdentifier: KeeperConnection] = [:]

    /// The managers that processes of apps have not claimed yet of what earlier ones have left, by the name of one that
    /// they have.
    private var unclaimed: [String: (process: AppProcess, names: Set<String>)] = [:]

    /// What an earlier keeper has left of apps that seem to run.
    private var undecided: [KeeperHello] = []
    private let journal: KeeperJournal?
    private var isWriting = false
    private let replaced: (@Sendable () -> Void)?

    /// - Parameters:
    ///   - journal: Where what it hosts is written down; nil: nowhere.
    ///   - replaced: Called when another keeper is to take its place; nil: none can.
    package init(journal: KeeperJournal? = nil, replaced: (@Sendable () -> Void)? = nil) {
        (self.journal, self.replaced) = (journal, replaced)
    }

    /// Continues what an earlier keeper has left that was killed, for apps that are not running. Before it listens.
    package func resume() {
        queue.async { [self] in
            let left = journal?.read() ?? []
            resume(journal?.orphans() ?? [])
            // An app that was killed together with that keeper may hold its file a little longer.
            undecided = left.filter { managers[$0.name] == nil && SnapshotStore.isInUse($0.statePath) }
            guard !undecided.isEmpty else { return }
            queue.asyncAfter(deadline: .now().later(by: .seconds(3))) { [self] in
                let names = Set(undecided.map(\.name))
                undecided = []
                resume(journal?.orphans().filter { names.contains($0.name) && managers[$0.name] == nil } ?? [])
            }
        }
    }

    private func resume(_ orphans: [KeeperHello]) {
        for hello in orphans {
            guard let manager = make(hello) else { continue }
            add(manager)
            manager.beginWithoutApp()
        }
        managersChanged()
    }

    /// For another keeper.
    private var hellos: [KeeperHello] {
        managers.values.map(\.hello) + undecided.filter { managers[$0.name] == nil }
    }

    /// Takes a connection of an app. Any thread.
    func take(_ socket: KeeperSocket) { queue.async { [self] in greet(socket) } }

    /// Takes the connections to a socket, as long as the process lasts. Any thread.
    package func listen(on descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
        // On the queue that finds it idle: none that it has taken is lost if that ends the process.
        watch(descriptor) { [self] source in
            while true {
                let accepted = cl2cap_accept(descriptor)
                guard accepted < 0 else {
                    greet(KeeperSocket(descriptor: accepted))
                    continue
                }
                switch errno {
                case EINTR, ECONNABORTED: continue
                case EAGAIN: return
                default: return pause(source, errno)
                }
            }
        }
        // libdispatch ends a process that has no descriptor for its first timer: it gets it while there are some.
        queue.asyncAfter(deadline: .now().later(by: .milliseconds(1))) {}
    }

    /// The process has no descriptor left, or no memory: the source would fire again at once, without end.
    private func pause(_ source: any DispatchSourceRead, _ code: Int32) {
        Log.warning(from: "accept", "the keeper cannot take an app: \(String(cString: strerror(code)))")
        source.suspend()
        let retry = DispatchTime.now().later(by: BlueZTiming.Channel().acceptRetry)
        queue.asyncAfter(deadline: retry, execute: DispatchWorkItem { source.resume() })
    }

    /// Calls `body`, on its queue, when there is something to read, as long as the process lasts. Any thread.
    func watch(_ descriptor: Int32, _ body: @escaping @Sendable (any DispatchSourceRead) -> Void) {
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        // It keeps itself.
        source.setEventHandler { body(source) }
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
            return Log.warning(from: "others", "a program of another user has asked for the keeper, and is refused")
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
            do { try answer(frame, connection) } catch { refuse(connection, "it does not understand: \(error)") }
        }
        connection.start()
        connection.send(.version(as: .greeting))
    }

    private func answer(_ frame: Frame, _ connection: KeeperConnection) throws {
        switch frame.kind {
        case .hello:
            strangers[ObjectIdentifier(connection)] = nil
            var hello = try BorderFormat.decode(KeeperHello.self, from: frame.body)
            hello.app = connection.process.program ?? hello.app
            host(hello, connection)
        case .status:
            let all = managers.values.map(\.status).sorted { $0.statePath < $1.statePath }
            connection.sendLast(Frame(kind: .answer, body: try BorderFormat.encode(all).bytes))
        case .discard:
            let path = String(decoding: frame.body, as: UTF8.self)
            let found = managers.values.filter { $0.hello.statePath == path }
            for manager in found { manager.readAll() }
            guard found.allSatisfy({ !$0.hasApp }) else { return refuse(connection, "the app is running") }
            for manager in found { manager.end() }
            undecided.removeAll { $0.statePath == path }
            connection.sendLast(Frame(kind: .answer, body: Data()))
        case .replace:
            guard let replaced else { return refuse(connection, "systemd starts the keeper: restart its unit") }
            guard frame.version(as: .replace) >= BorderFormat.version else {
                return refuse(connection, "the keeper that runs is newer")
            }
            journal?.write(hellos)
            connection.send(Frame(kind: .answer, body: Data()))
            replaced()
        default: throw FrameReader.Failure.malformed
        }
    }

    private func host(_ hello: KeeperHello, _ connection: KeeperConnection) {
        let name = hello.name
        defer { awaitClaims(of: hello, connection) }
        managers[name]?.readAll()
        if let known = managers[name] {
            guard !known.hasApp else { return refuse(connection, "another process of the app has this manager") }
            // One that has come from another keeper, and was not told so, has the numbers of that.
            let isOlder = known.hello.resumes && known.isUnheard
            if hello.continues(known.hello), !hello.resumes, !isOlder, !known.isOverfull {
                known.handOver(to: connection, hello)
                return managersChanged()
            }
            known.end()
        }
        guard let new = make(hello) else {
            return refuse(connection, "there is no memory to share with the app, or it is of another role")
        }
        add(new)
        new.begin(with: connection)
    }

    /// The app has another process, which has so long to make the managers again that it does not have yet (RS-6).
    private func awaitClaims(of hello: KeeperHello, _ connection: KeeperConnection) {
        for name in unclaimed.keys { unclaimed[name]?.names.remove(hello.name) }
        guard let directory = hello.directory, let manager = managers[hello.name] else { return }
        let others = managers.values.filter { $0.hello.isBeside(hello) }
        let left = others.filter { !$0.hasApp }
        guard !left.isEmpty else { return }
        let process = connection.process
        // A peripheral manager has no period of its own: the app has told it with its central managers, if with any.
        let period =
            hello.central?.claims?.period ?? others.compactMap { $0.hello.central?.claims?.period }.max()
            ?? BlueZTiming.Preservation().claims
        unclaimed[hello.name] = (process, Set(left.map(\.hello.name)))
        // An app may make its other managers when the first one says that Bluetooth is on.
        manager.whenOn { [weak self, queue] in
            queue.asyncAfter(deadline: .now().later(by: period)) { [weak self] in
                self?.endUnclaimed(by: hello.name, process, in: directory)
            }
        }
    }

    private func endUnclaimed(by name: String, _ process: AppProcess, in directory: StateDirectory) {
        guard let found = unclaimed[name], found.process === process else { return }
        unclaimed[name] = nil
        guard process.isRunning else { return }
        for manager in found.names.compactMap({ managers[$0] }) {
            let hello = manager.hello
            guard hello.role == .central else {
                manager.end()
                continue
            }
            // The file first: when the link has ended, a process that comes must not read that there is one.
            manager.end { ended in
                Session.shared(hello.session).central.setUnclaimed(hello.statePath, in: directory, ended)
            }
        }
    }

    private func add(_ manager: any HostedApp) {
        let name = manager.hello.name
        managers[name] = manager
        manager.onEnd = { [weak self, weak manager] in
            guard let self, managers[name] === manager else { return }
            managers[name] = nil
            managersChanged()
        }
        managersChanged()
    }

    private func managersChanged() {
        idleChanged()
        guard let journal, !isWriting else { return }
        isWriting = true
        // Once for all that are waiting.
        queue.async { [self] in
            isWriting = false
            journal.write(hellos)
        }
    }

    private func make(_ hello: KeeperHello) -> (any HostedApp)? {
        switch hello.role {
        case .central: HostedManager<HostedCentral>(hello, on: queue)
        case .peripheral: HostedManager<HostedPublisher>(hello, on: queue)
        }
    }

    private func refuse(_ connection: KeeperConnection, _ reason: String) {
        connection.sendLast(Frame(kind: .refusal, body: Data(reason.utf8)))
    }
}
