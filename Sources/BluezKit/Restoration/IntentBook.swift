import BluezKitRestore
import BluezDBus
import Dispatch
import Foundation

/// What a manager was asked to do: its scan and its connections, or its services and its advertisement. With a restore
/// identifier every change is on disk before it takes effect, and before the app's call returns (D11); without one the
/// book is only used to resume after a reset (D10).
///
/// What the app's queue learns (a link, a table, `isNotifying`) is written as well, before the callback. Values and
/// scan reports are not written. The subscribers of our services, whose subscriptions BlueZ ends with the process, are
/// written once a second at most. A failed save is retried every 5 s.
///
/// A link that has ended is removed when `didDisconnectPeripheral` has *returned*: if the process is killed within the
/// callback, the next one gets it again. Switching Bluetooth off ends everything, but bluetoothd sends the same signals
/// when it is asked to exit. So the removal of the preserved state is delayed by 10 s, and cancelled if the daemon
/// exits in that time.
///
/// May be used on any thread. The lock is held while the file is written, so that the changes reach it in order. It is
/// taken before the locks of managers and peripherals; nothing is logged while it is held.
final class IntentBook: Sendable {
    private struct State {
        var snapshot: Snapshot
        var store: SnapshotStore?
        var isOnDisk: Bool
        /// The object of each record: the app may have released one, and have another with the same identifier.
        var owners: [UUID: ObjectIdentifier] = [:]
        var hasFailed = false
        var isRetryDue = false
        var powerOffReset: PowerOffReset?
        var powerOffResets: UInt64 = 0
        var isGathering = false
        var gathered: (@Sendable () -> Void)?
    }

    /// Bluetooth was switched off, which ends everything. But bluetoothd sends the same signals when it is asked to
    /// exit, and then everything resumes. Shortly afterwards it becomes clear which of the two it was.
    private struct PowerOffReset {
        let number: UInt64
        let since: DispatchTime
    }

    /// Whether the work resumes automatically after a reset.
    let resumes: Bool
    /// The file; nil: in memory only.
    let path: String?
    /// The directory of the state of the app's other managers.
    let directory: StateDirectory?
    private let timing: BlueZTiming.Preservation
    /// That of the manager's bus; nil: real time.
    private let time: VirtualTime?
    private let state: Protected<State>

    private init(_ state: State, resumes: Bool, timing: BlueZTiming.Preservation, time: VirtualTime?) {
        (self.state, self.resumes) = (Protected(state, isFirst: true), resumes)
        (self.timing, self.time) = (timing, time)
        (path, directory) = (state.store?.path, state.store?.directory)
    }

    /// Creates the book of a new manager, and reads what an earlier process preserved.
    /// - Returns: No book for a manager that neither preserves nor resumes.
    static func open(
        _ role: Snapshot.Role, identifier: String?, options: [String: Any]?,
        timing: BlueZTiming.Preservation = BlueZTiming.Preservation()
    ) -> (book: IntentBook?, preserved: Snapshot?) {
        var (store, preserved): (SnapshotStore?, Snapshot?)
        if let identifier { (store, preserved) = openStore(role, identifier, options, timing) }
        let choice = (options?[BluezManagerOptionResumeAfterResetKey] as? NSNumber)?.boolValue
        let resumes = choice ?? (identifier != nil)
        guard store != nil || resumes else { return (nil, nil) }
        let empty = Snapshot(
            role: role, identifier: identifier ?? "", app: StateDirectory.app, boot: StateDirectory.boot, saved: Date())
        let state = State(snapshot: preserved ?? empty, store: store, isOnDisk: preserved != nil)
        let time = VirtualTime.on(Session.Key.address(options: options))
        return (IntentBook(state, resumes: resumes, timing: timing, time: time), preserved)
    }

    private static func openStore(
        _ role: Snapshot.Role, _ identifier: String, _ options: [String: Any]?, _ timing: BlueZTiming.Preservation
    ) -> (SnapshotStore?, Snapshot?) {
        guard let directory = StateDirectory(options: options) else {
            Log.warning(
                "there is no directory to preserve state in: set BLUEZKIT_STATE_DIR, HOME, or "
                    + "BluezManagerOptionStateDirectoryKey. Preservation is disabled for the manager \"\(identifier)\"")
            return (nil, nil)
        }
        do throws(SnapshotStore.Failure) {
            let store = try lockedStore(directory, role, identifier, timing)
            do throws(SnapshotStore.Failure) { return (store, try store.load()) } catch {
                // A file that could not be read may be valid: it is not overwritten.
                guard error.isBadContent else { throw error }
                Log.warning("preserved state cannot be used and is treated as none: \(error)")
                return (store, nil)
            }
        } catch {
            let text = "\(error). Preservation is disabled for this manager"
            guard error.isInUse else {
                Log.warning(text)
                // It would go on beside this process, and start others, of which none could ask for its work.
                Keeper.leave(directory.file(role, identifier))
                return (nil, nil)
            }
            Log.misuse("\(text): end the other one first, or give this one another identifier")
            return (nil, nil)
        }
    }

    private static func lockedStore(
        _ directory: StateDirectory, _ role: Snapshot.Role, _ identifier: String, _ timing: BlueZTiming.Preservation
    ) throws(SnapshotStore.Failure) -> SnapshotStore {
        for _ in 0..<timing.lockRetries {
            do throws(SnapshotStore.Failure) { return try SnapshotStore(directory, role, identifier) } catch {
                guard error.isInUse else { throw error }
                usleep(UInt32(timing.lockRetry / .microseconds(1)))
            }
        }
        return try SnapshotStore(directory, role, identifier)
    }

    // MARK: Changing

    /// Changes the book, and the file if the book has changed.
    /// - Parameter changes: Called under the book's lock, so that the last writer sees the last change.
    func record(_ changes: () -> [Snapshot.Change]) {
        perform { state in
            let news = changes().filter { state.snapshot.apply($0) }
            return news.isEmpty ? nil : save(&state, news)
        }
    }

    /// - Parameters:
    ///   - owner: The app's object to which the record belongs.
    ///   - record: The new record; nil: it is removed.
    func record(_ identifier: UUID, of owner: AnyObject, _ record: () -> Snapshot.Peripheral?) {
        perform { state in
            let record = record()
            state.owners[identifier] = record == nil ? nil : ObjectIdentifier(owner)
            let change = record.map { Snapshot.Change.peripheral(is: $0) } ?? .removal(of: identifier)
            return state.snapshot.apply(change) ? save(&state, [change]) : nil
        }
    }

    /// The app has released the peripheral.
    /// - Parameter owner: The object that was released; nil: any.
    func forget(_ identifier: UUID, of owner: AnyObject? = nil) {
        perform { state in
            guard owner == nil || state.owners[identifier] == owner.map(ObjectIdentifier.init) else { return nil }
            state.owners[identifier] = nil
            return state.snapshot.apply(.removal(of: identifier)) ? save(&state, [.removal(of: identifier)]) : nil
        }
    }

    /// For frequent changes of little importance that need not be saved at once: `body`, which makes the change, is
    /// called now if it was not called within the last second, otherwise after that second.
    func gather(_ body: @escaping @Sendable () -> Void) {
        let isFirst = state.withLock { state in
            if state.isGathering { state.gathered = body }
            defer { state.isGathering = true }
            return !state.isGathering
        }
        guard isFirst else { return }
        body()
        later(timing.gathering) { book in
            let gathered = book.state.withLock { state in
                defer { (state.isGathering, state.gathered) = (false, nil) }
                return state.gathered
            }
            gathered.map(book.gather)
        }
    }

    /// - Parameter body: Returns a text to log, if any.
    private func perform(_ body: (inout State) -> String?) {
        state.withLock(body).map(Log.warning)
    }

    private func later(_ delay: Duration, _ body: @escaping @Sendable (IntentBook) -> Void) {
        let run: @Sendable () -> Void = { [weak self] in self.map(body) }
        if let time {
            time.schedule(at: time.now.later(by: delay), on: .files, run)
        } else {
            DispatchQueue.files.asyncAfter(deadline: .now().later(by: delay), execute: run)
        }
    }

    private var now: DispatchTime { time?.now ?? .now() }

    /// - Parameter changes: The changes; nil: the whole file is written.
    /// - Returns: A text to log, if any.
    private func save(_ state: inout State, _ changes: [Snapshot.Change]? = nil) -> String? {
        guard let store = state.store, state.isOnDisk || !state.snapshot.isEmpty else { return nil }
        state.snapshot.saved = Date()
        do throws(SnapshotStore.Failure) {
            let wasDeleted = try store.save(state.snapshot, changes)
            state.isOnDisk = !state.snapshot.isEmpty
            defer { state.hasFailed = false }
            if wasDeleted {
                return
                    "the directory of the preserved state, or the lock in it, was deleted while it was in use; both are there "
                    + "again, and state is preserved in \(store.path)"
            }
            return state.hasFailed && state.isOnDisk ? "state is preserved again, in \(store.path)" : nil
        } catch {
            defer { state.hasFailed = true }
            retryLater(&state)
            guard !state.hasFailed else { return nil }
            return "state cannot be preserved: \(error). If the app exits now, the last saved state will be restored; "
                + "BluezKit tries again every 5 s"
        }
    }

    private func retryLater(_ state: inout State) {
        guard !state.isRetryDue else { return }
        state.isRetryDue = true
        later(timing.saveRetry) { book in
            book.perform { state in
                state.isRetryDue = false
                return state.hasFailed ? book.save(&state) : nil
            }
        }
    }

    /// The manager was released, and all its work ended (RS-16). From now on the file belongs to another manager.
    func end() {
        perform { state in
            state.snapshot.switchOff()
            (state.snapshot.services, state.snapshot.channels) = ([], nil)
            (state.powerOffReset, state.gathered, state.owners) = (nil, nil, [:])
            defer {
                state.store?.close()
                (state.store, state.hasFailed) = (nil, false)
            }
            return save(&state)
        }
    }

    /// The app's process has ended, as a simulator has it: the file stays as it is, for another manager.
    func die() {
        state.withLock { state in
            state.store?.close()
            (state.store, state.hasFailed, state.gathered, state.powerOffReset) = (nil, false, nil, nil)
        }
    }

    var peripherals: PeripheralTable { state.withLock { $0.snapshot.peripherals } }
    var scan: ScanRequest? { state.withLock { $0.snapshot.scan } }
    var advertisement: AdvertisementRequest? { state.withLock { $0.snapshot.advertisement } }

    // MARK: Switched off, or exiting?

    /// The state is removed, unless ``cancelPowerOffReset()`` is called soon.
    /// - Returns: The number of this scheduled removal.
    @discardableResult
    func schedulePowerOffReset() -> UInt64 {
        let number = state.withLock { state in
            state.powerOffResets += 1
            state.powerOffReset = PowerOffReset(number: state.powerOffResets, since: now)
            return state.powerOffResets
        }
        later(timing.powerOffReset) { $0.commitPowerOffReset(number) }
        return number
    }

    /// bluetoothd has exited, so Bluetooth was not switched off by the user.
    /// - Returns: Whether the work resumes.
    func cancelPowerOffReset() -> Bool {
        state.withLock { state in
            defer { state.powerOffReset = nil }
            guard let since = state.powerOffReset?.since else { return true }
            return since.later(by: timing.powerOffReset) > now
        }
    }

    /// - Parameter number: The scheduled removal; nil: any.
    /// - Returns: Whether there was one.
    @discardableResult
    func commitPowerOffReset(_ number: UInt64? = nil) -> Bool {
        var isDue = false
        perform { state in
            guard let powerOffReset = state.powerOffReset, number == nil || powerOffReset.number == number else {
                return nil
            }
            (isDue, state.powerOffReset, state.owners) = (true, nil, [:])
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
