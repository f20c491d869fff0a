import BluezKitRestore
import Dispatch
import Foundation

/// State that this app has preserved and that no manager has claimed: its radio work ends, the state stays (RS-6).
extension Session {
    func endUnclaimed(in directory: StateDirectory) {
        guard let life else { return }
        DispatchQueue.global(qos: .utility).async { [weak self] in
            for path in directory.files() {
                guard let unclaimed = Self.release(path, in: directory, life) else { continue }
                guard let self else { return }
                run { self.endLinks(of: unclaimed) }
            }
        }
    }

    /// What is connected in a file that nobody uses becomes a pending connect of whoever claims it later.
    /// - Returns: What was connected.
    private static func release(
        _ path: String, in directory: StateDirectory, _ life: String
    ) -> [Snapshot.Peripheral]? {
        // Those of other programs, and those in use, are not ours to end. What cannot be read is left to its owner.
        guard let content = try? SnapshotStore.content(of: path), let found = try? Snapshot(fileContent: content),
            found.role == .central, found.app == StateDirectory.app, found.bluetooth == life,
            found.peripherals.contains(where: { $0.state == .connected }),
            let store = try? SnapshotStore(directory, .central, found.identifier), var snapshot = try? store.load()
        else { return nil }
        let connected = snapshot.peripherals.filter { $0.state == .connected }
        for index in snapshot.peripherals.indices {
            snapshot.peripherals[index].state = .connecting
            snapshot.peripherals[index].services = nil
        }
        do throws(SnapshotStore.Failure) { try store.save(snapshot) } catch { return nil }
        Log.warning(
            "no manager has claimed the preserved state of \"\(found.identifier)\": its connections end; the state is "
                + "kept until it is claimed or discarded")
        return connected
    }

    private func endLinks(of peripherals: [Snapshot.Peripheral]) {
        guard adapter.state == .poweredOn, let bus else { return }
        // One with a private address is to be found under that, or since bluetoothd's last start under its own.
        for identity in peripherals.flatMap({ [DeviceIdentity(identifier: $0.identifier), $0.resolved] }) {
            guard let path = identity.flatMap({ adapterPath?.appending($0.pathElement) }),
                devicesByPath[path.rawValue]?.isWanted != true
            else { continue }
            BlueZProxy(bus: bus, path: path, interface: BlueZ.device).disconnect { _ in }  // it may be gone already
        }
    }
}
