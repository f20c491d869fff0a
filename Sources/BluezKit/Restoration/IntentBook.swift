import BluezKitRestore
import BluezDBus
import Dispatch
import Foundation

/// What a manager is about: its scan and its connections, or its services and its advertisement. With a restore
/// identifier every change is on disk before anything is done about it, and before the app's call returns (D11); without
/// one the book is only for going on after a reset (D10).
///
/// Any thread. The lock is held while the file is written, so that the changes come there in their order. It is taken
/// before the locks of managers and peripherals; nothing is logged while it is held.
final class IntentBook: Sendable {
    private struct State {
        var snapshot: Snapshot
        var store: SnapshotStore?
        var isOnDisk: Bool
        /// Which object each record is of: the app may have let go of one, and have another of the same identifier.
        var owners: [UUID: ObjectIdentifier] = [:]
        var hasFailed = false
        var isRetryDue = false
        var condemnation: Condemnation?
        var condemnations: UInt64 = 0
        var isGathering = false
        var gathered: (@Sendable () -> Void)?
    }

    /// Bluetooth was switched off, which ends everything; but bluetoothd says the same when it is told to end, and
    /// then everything goes on. Which of the two it was shows a moment later.
    private struct Condemnation {
        let number: UInt64
        let since: DispatchTime
    }

    /// Whether the work goes on by itself after a reset.
    let resumes: Bool
    /// Where it is kept; nil: in memory only.
    let path: String?
    /// Where the app's other managers keep theirs.
    let directory: StateDirectory?
    private let state: Protected<State>

    private init(_ state: State, resumes: Bool) {
        (self.state, self.resumes) = (Protected(state, isFirst: true), resumes)
        (path, directory) = (state.store?.path, state.store?.directory)
    }

    /// The book of a new manager, and what an earlier process left in it.
    /// - Returns: No book for a manager that neither preserves nor resumes.
    static func open(
        _ role: Snapshot.Role, identifier: String?, options: [String: Any]?
    ) -> (book: IntentBook?, preserved: Snapshot?) {
        var (store, preserved): (SnapshotStore?, Snapshot?)
        if let identifier { (store, preserved) = openStore(role, identifier, options) }
        let choice = (options?[BluezManagerOptionResumeAfterResetKey] as? NSNumber)?.boolValue
        let resumes = choice ?? (identifier != nil)
        guard store != nil || resumes else { return (nil, nil) }
        let empty = Snapshot(
            role: role, identifier: identifier ?? "", app: StateDirectory.app, boot: StateDirectory.boot, saved: Date())
        let state = State(snapshot: preserved ?? empty, store: store, isOnDisk: preserved != nil)
        return (IntentBook(state, resumes: resumes), preserved)
    }

    private static func openStore(
        _ role: Snapshot.Role, _ identifier: String, _ options: [String: Any]?
    ) -> (SnapshotStore?, Snapshot?) {
        guard let directory = StateDirectory(options: options) else {
            Log.warning(
                "there is no directory to preserve state in: set BLUEZKIT_STATE_DIR, HOME, or "
                    + "BluezManagerOptionStateDirectoryKey. The manager \"\(identifier)\" runs without preservation")
            return (nil, nil)
        }
        do throws(SnapshotStore.Failure) {
            let store = try lockedStore(directory, role, identifier)
            do throws(SnapshotStore.Failure) { return (store, try store.load()) } catch {
                // What could not be read may be good: it is not written over.
                guard error.isBadContent else { throw error }
                Log.warning("preserved state cannot be used and is treated as none: \(error)")
                return (store, nil)
            }
        } catch {
            let text = "\(error). This one runs without preservation"
            if error.isInUse { Log.misuse(text) } else { Log.warning(text) }
            return (nil, nil)
        }
    }

    private static func lockedStore(
        _ directory: StateDirectory, _ role: Snapshot.Role, _ identifier: String
    ) throws(SnapshotStore.Failure) -> SnapshotStore {
        // Who gives up what was not claimed holds the lock for some milliseconds.
        for _ in 0..<5 {
            do throws(SnapshotStore.Failure) { return try SnapshotStore(directory, role, identifier) } catch {
                guard error.isInUse else { throw error }
                usleep(10_000)
            }
        }
        return try SnapshotStore(directory, role, identifier)
    }

    // MARK: Changing

    /// Changes the book, and the file if that makes a difference.
    /// - Parameter changes: Called under the book's lock: the last writer has seen the last change.
    func note(_ changes: () -> [Snapshot.Change]) {
        perform { state in
            let news = changes().filter { state.snapshot.apply($0) }
            return news.isEmpty ? nil : save(&state, news)
        }
    }

    /// - Parameters:
    ///   - owner: Which of the app's objects it is.
    ///   - record: What there is to say of it; nil: nothing any more.
    func note(_ identifier: UUID, of owner: AnyObject, _ record: () -> Snapshot.Peripheral?) {
        perform { state in
            let record = record()
            state.owners[identifier] = record == nil ? nil : ObjectIdentifier(owner)
            let change = record.map { Snapshot.Change.peripheral(is: $0) } ?? .removal(of: identifier)
            return state.snapshot.apply(change) ? save(&state, [change]) : nil
        }
    }

    /// The app has let go of the peripheral.
    /// - Parameter owner: Which object of it; nil: whatever there is.
    func forget(_ identifier: UUID, of owner: AnyObject? = nil) {
        perform { state in
            guard owner == nil || state.owners[identifier] == owner.map(ObjectIdentifier.init) else { return nil }
            state.owners[identifier] = nil
            return state.snapshot.apply(.removal(of: identifier)) ? save(&state, [.removal(of: identifier)]) : nil
        }
    }

    /// For what changes often, is worth little, and need not be there at once: `body`, which makes the note, is called now
    /// if it was not called within the last second, and else when that is over.
    func gather(_ body: @escaping @Sendable () -> Void) {
        let isFirst = state.withLock { state in
            if state.isGathering { state.gathered = body }
            defer { state.isGathering = true }
            return !state.isGathering
        }
        guard isFirst else { return }
        body()
        later(.seconds(1)) { book in
            let gathered = book.state.withLock { state in
                defer { (state.isGathering, state.gathered) = (false, nil) }
                return state.gathered
            }
            gathered.map(book.gather)
        }
    }

    /// - Parameter body: Returns what there is to log.
    private func perform(_ body: (inout State) -> String?) {
        state.withLock(body).map(Log.warning)
    }

    private func later(_ delay: DispatchTimeInterval, _ body: @escaping @Sendable (IntentBook) -> Void) {
        DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + delay) { [weak self] in self.map(body) }
    }

    /// - Parameter changes: What is new; nil: it is written as a whole.
    /// - Returns: What there is to log.
    private func save(_ state: inout State, _ changes: [Snapshot.Change]? = nil) -> String? {
        guard let store = state.store, state.isOnDisk || !state.snapshot.isEmpty else { return nil }
        state.snapshot.saved = Date()
        do throws(SnapshotStore.Failure) {
            try store.save(state.snapshot, changes)
            state.isOnDisk = !state.snapshot.isEmpty
            defer { state.hasFailed = false }
            return state.hasFailed ? "state is preserved again, in \(store.path)" : nil
        } catch {
            defer { state.hasFailed = true }
            retryLater(&state)
            guard !state.hasFailed else { return nil }
            return "state cannot be preserved: \(error). An app that ends now comes back to what was preserved last; "
                + "BluezKit tries again every 5 s"
        }
    }

    private func retryLater(_ state: inout State) {
        guard !state.isRetryDue else { return }
        state.isRetryDue = true
        later(.seconds(5)) { book in
            book.perform { state in
                state.isRetryDue = false
                return state.hasFailed ? book.save(&state) : nil
            }
        }
    }

    /// The manager is gone, and all that it was about (RS-16). The file is another's from here on.
    func end() {
        perform { state in
            state.snapshot.switchOff()
            state.snapshot.services = []
            (state.condemnation, state.gathered, state.owners) = (nil, nil, [:])
            defer {
                state.store?.close()
                (state.store, state.hasFailed) = (nil, false)
            }
            return save(&state)
        }
    }

    var peripherals: PeripheralTable { state.withLock { $0.snapshot.peripherals } }
    var scan: Snapshot.Scan? { state.withLock { $0.snapshot.scan } }
    var advertisement: Snapshot.Advertisement? { state.withLock { $0.snapshot.advertisement } }

    // MARK: Switched off, or shut down?

    /// How long bluetoothd takes at most from switching an adapter off to being gone, when it is told to end.
    static let shutdownTime = DispatchTimeInterval.seconds(10)

    /// Everything ends, unless ``pardon()`` comes soon.
    /// - Returns: Which condemnation it is.
    @discardableResult
    func condemn() -> UInt64 {
        let number = state.withLock { state in
            state.condemnations += 1
            state.condemnation = Condemnation(number: state.condemnations, since: .now())
            return state.condemnations
        }
        later(Self.shutdownTime) { $0.execute(number) }
        return number
    }

    /// Bluetoothd is gone: it was not switched off by somebody.
    /// - Returns: Whether everything goes on.
    func pardon() -> Bool {
        state.withLock { state in
            defer { state.condemnation = nil }
            guard let since = state.condemnation?.since else { return true }
            return since + Self.shutdownTime > .now()
        }
    }

    /// - Parameter number: Which condemnation; nil: whatever there is.
    /// - Returns: Whether there was one.
    @discardableResult
    func execute(_ number: UInt64? = nil) -> Bool {
        var isDue = false
        perform { state in
            guard let condemnation = state.condemnation, number == nil || condemnation.number == number else {
                return nil
            }
            (isDue, state.condemnation, state.owners) = (true, nil, [:])
            return state.snapshot.apply(.off) ? save(&state, [.off]) : nil
        }
        return isDue
    }
}

extension StateDirectory {
    init?(options: [String: Any]?) {
        let choice = options?[BluezManagerOptionStateDirectoryKey]
        self.init(
            choice: choice as? String ?? (choice as? URL)?.path, environment: environment, app: StateDirectory.app)
    }
}
