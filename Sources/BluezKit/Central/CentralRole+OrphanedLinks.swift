import BluezKitRestore
import BluezDBus
import Dispatch
import Foundation

/// State that this app has preserved and that no manager has claimed: its radio work ends, the state stays (RS-6).
extension CentralRole {
    func endUnclaimed(in directory: StateDirectory) {
        guard let generation = adapter.stackGeneration else { return }
        DispatchQueue.files.async { [weak self] in
            for path in directory.files() {
                guard let unclaimed = Self.release(path, in: directory, generation) else { continue }
                guard let self else { return }
                bus.run { self.endLinks(of: unclaimed) }
            }
        }
    }

    /// The same for one file, of an app whose core ends in a keeper.
    /// - Parameter done: Called on another queue, when nothing more is done with the file.
    func setUnclaimed(_ path: String, in directory: StateDirectory, _ done: @escaping @Sendable () -> Void) {
        bus.run { [self] in
            let generation = adapter.stackGeneration
            DispatchQueue.files.async {
                if let generation { _ = Self.release(path, in: directory, generation, of: nil) }
                done()
            }
        }
    }

    /// A connection in a file that no process uses becomes a pending connect for the manager that claims it later.
    /// - Parameter app: The program that must have written it; nil: any.
    /// - Returns: What was connected or being connected.
    private static func release(
        _ path: String, in directory: StateDirectory, _ generation: String, of app: String? = StateDirectory.app
    ) -> [Snapshot.Peripheral]? {
        // Those of other programs, and those in use, are not ours to end. What cannot be read is left to its owner.
        guard let content = try? SnapshotStore.content(of: path), let found = try? Snapshot(fileContent: content),
            found.role == .central, app == nil || found.app == app, found.bluetooth == generation,
            !found.peripherals.isEmpty, let store = try? SnapshotStore(directory, .central, found.identifier),
            var snapshot = try? store.load()
        else { return nil }
        let peripherals = Array(snapshot.peripherals)
        guard peripherals.contains(where: { $0.state == .connected }) else { return peripherals }
        for var peripheral in peripherals {
            (peripheral.state, peripheral.services) = (.connecting, nil)
            snapshot.peripherals[peripheral.identifier] = peripheral
        }
        do throws(SnapshotStore.Failure) { try store.save(snapshot) } catch { return nil }
        Log.warning(
            "no manager has claimed the preserved state of \"\(found.identifier)\": its connections end; the state is "
                + "kept until it is claimed or discarded")
        return peripherals
    }

    private func endLinks(of peripherals: [Snapshot.Peripheral]) {
        // One with a private address is to be found under that, or since bluetoothd's last start under its own.
        for identity in peripherals.flatMap({ [DeviceIdentity(identifier: $0.identifier), $0.resolved] }) {
            guard let identity, let path = adapter.path?.appending(identity.pathElement) else { continue }
            endOrphan(identity, at: path)
        }
    }

    // MARK: What dead processes have left

    /// Ends the links and the attempts of processes that have died, unless preserved state claims them: on Apple they
    /// end with the process. What this process wants itself continues.
    func endOrphans() {
        guard let generation = adapter.stackGeneration, let directory = LinkLease.directory else { return }
        DispatchQueue.files.async { [weak self] in
            for found in LinkLease.all(of: generation.replacing("/", with: "_"), in: directory)
            where !found.states.contains(where: { Self.mayClaim($0, found.identity) }) {
                guard let self else { return }
                bus.run {
                    guard self.bus.observer != nil, generation == self.adapter.stackGeneration,
                        let path = self.adapter.path?.appending(found.element)
                    else { return }
                    self.endOrphan(found.identity, at: path)
                }
            }
        }
    }

    /// Whether preserved state wants the peripheral. What cannot be read is left to its owner.
    private static func mayClaim(_ statePath: String, _ identity: DeviceIdentity) -> Bool {
        do {
            guard let content = try SnapshotStore.content(of: statePath) else { return false }
            return try Snapshot(fileContent: content).peripherals.contains {
                $0.identifier == identity.identifier || $0.identity == identity.identifier
            }
        } catch {
            return true
        }
    }

    /// Ends a link, or an attempt, of a program with BluezKit, if no process holds it. A connect request meanwhile
    /// waits for the end, as after a cancel.
    private func endOrphan(_ identity: DeviceIdentity, at path: ObjectPath) {
        guard adapter.state == .poweredOn, let directory = LinkLease.directory, let name = leaseName(of: path) else {
            return
        }
        guard store[path.rawValue]?.connection == nil, let lease = LinkLease.inherit(name, in: directory) else {
            return
        }
        let device = store.device(identity, at: path)
        guard device.connection == nil else { return }
        Log.debug("\(path): a process that has died has left it, and it is ended")
        connection(of: device).endOrphan(lease)
    }

    /// Whether a program with BluezKit has a link to the device, or makes one.
    func isLeased(_ device: Device) -> Bool {
        leaseName(of: device.path).map { LinkLease.exists($0, in: LinkLease.directory) } ?? false
    }

    /// The name of a link's lease: by its path, as one device can have two addresses.
    func leaseName(of path: ObjectPath) -> String? {
        adapter.stackGeneration.map { "\($0) \(path.lastElement)".replacing("/", with: "_") }
    }
}
