import BluezKitRestore
import DBus
import Dispatch
import Foundation

/// What a manager is about: its scan and its connections, or its services and its advertisement. With a restore
/// identifier every change is on disk before anything is done about it, and before the app's call returns (D11); without
/// one the book is only for going on after a reset (D10).
///
/// Any thread. The lock is held while the file is written, so that the files come in the order of the changes.
final class IntentBook: Sendable {
    private struct State {
        var snapshot: Snapshot
        var store: SnapshotStore?
        var isOnDisk: Bool
        var hasFailed = false
        var condemnation: Condemnation?
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
        (self.state, self.resumes) = (Protected(state), resumes)
        (path, directory) = (state.store?.path, state.store?.directory)
    }

    /// The book of a new manager, and what an earlier process left in it.
    /// - Returns: No book for a manager that neither preserves nor resumes.
    static func open(
        _ role: Snapshot.Role, identifier: String?, options: [String: Any]?
    ) -> (book: IntentBook?, preserved: Snapshot?) {
        var store: SnapshotStore?
        var preserved: Snapshot?
        if let identifier {
            store = openStore(role, identifier, options)
            do throws(SnapshotStore.Failure) { preserved = try store?.load() } catch {
                Log.warning("preserved state cannot be used and is treated as none: \(error)")
            }
        }
        let choice = (options?[BluezManagerOptionResumeAfterResetKey] as? NSNumber)?.boolValue
        guard store != nil || choice == true else { return (nil, nil) }
        let empty = Snapshot(
            role: role, identifier: identifier ?? "", app: StateDirectory.app, boot: StateDirectory.boot, saved: Date())
        let state = State(snapshot: empty, store: store, isOnDisk: preserved != nil)
        return (IntentBook(state, resumes: choice ?? true), preserved)
    }

    private static func openStore(
        _ role: Snapshot.Role, _ identifier: String, _ options: [String: Any]?
    ) -> SnapshotStore? {
        guard let directory = StateDirectory(options: options) else {
            Log.warning(
                "there is no directory to preserve state in: set BLUEZKIT_STATE_DIR, HOME, or "
                    + "BluezManagerOptionStateDirectoryKey. The manager \"\(identifier)\" runs without preservation")
            return nil
        }
        do throws(SnapshotStore.Failure) {
            // Who gives up what was not claimed holds the lock for some milliseconds.
            for _ in 0..<5 {
                do throws(SnapshotStore.Failure) { return try SnapshotStore(directory, role, identifier) } catch {
                    guard error.isInUse else { throw error }
                    usleep(10_000)
                }
            }
            return try SnapshotStore(directory, role, identifier)
        } catch {
            let text = "\(error). This one runs without preservation"
            if error.isInUse { Log.misuse(text) } else { Log.warning(text) }
            return nil
        }
    }

    // MARK: Changing

    /// Changes the book, and the file if that makes a difference.
    func change(_ body: (inout Snapshot) -> Void) {
        state.withLock { state in
            var snapshot = state.snapshot
            body(&snapshot)
            guard snapshot != state.snapshot else { return }
            state.snapshot = snapshot
            save(&state)
        }
    }

    private func save(_ state: inout State) {
        guard let store = state.store, state.isOnDisk || !state.snapshot.isEmpty else { return }
        state.snapshot.saved = Date()
        do throws(SnapshotStore.Failure) {
            try store.save(state.snapshot)
            state.isOnDisk = !state.snapshot.isEmpty
            if state.hasFailed { Log.warning("state is preserved again, in \(store.path)") }
            state.hasFailed = false
        } catch {
            if !state.hasFailed {
                Log.warning(
                    "state cannot be preserved: \(error). An app that ends now comes back to what was preserved last; "
                        + "BluezKit tries again every 5 s")
            }
            state.hasFailed = true
            DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + 5) { [weak self] in self?.retry() }
        }
    }

    private func retry() {
        state.withLock { state in if state.hasFailed { save(&state) } }
    }

    /// The manager is gone, and all that it was about (RS-16).
    func end() {
        state.withLock { state in
            state.snapshot.switchOff()
            state.snapshot.services = []
            state.condemnation = nil
            save(&state)
            state.store = nil
        }
    }

    /// The app has let go of the peripheral.
    func forget(_ identifier: UUID) {
        change { snapshot in snapshot.peripherals.removeAll { $0.identifier == identifier } }
    }

    var peripherals: [Snapshot.Peripheral] { state.withLock { $0.snapshot.peripherals } }
    var scan: Snapshot.Scan? { state.withLock { $0.snapshot.scan } }
    var advertisement: Snapshot.Advertisement? { state.withLock { $0.snapshot.advertisement } }

    // MARK: Switched off, or shut down?

    /// How long bluetoothd takes at most from switching an adapter off to being gone, when it is told to end.
    static let shutdownTime = DispatchTimeInterval.seconds(10)

    /// Everything ends, unless ``pardon()`` comes soon.
    func condemn() {
        let number = state.withLock { state in
            let number = (state.condemnation?.number ?? 0) + 1
            state.condemnation = Condemnation(number: number, since: .now())
            return number
        }
        DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + Self.shutdownTime) { [weak self] in
            self?.execute(number)
        }
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
        state.withLock { state in
            guard let condemnation = state.condemnation, number == nil || condemnation.number == number else {
                return false
            }
            state.condemnation = nil
            state.snapshot.switchOff()
            save(&state)
            return true
        }
    }
}

extension StateDirectory {
    init?(options: [String: Any]?) {
        let choice = options?[BluezManagerOptionStateDirectoryKey]
        self.init(
            choice: choice as? String ?? (choice as? URL)?.path, environment: environment, app: StateDirectory.app)
    }
}
