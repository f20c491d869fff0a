package import Foundation

/// Recordings of the devices in files that people have: btsnoop captures, and what BlueZ stores.
package struct RecordingImport {
    /// A file, with its path, of which the address of a device may be a part.
    package struct File {
        let path: String
        let content: Data

        package init(path: String, content: Data) { (self.path, self.content) = (path, content) }

        /// The address in the name of the file or of its folder: BlueZ has `ADAPTER/cache/ADDRESS` and
        /// `ADAPTER/ADDRESS/info`.
        var address: String? {
            path.split(separator: "/").suffix(2).reversed().map { $0.uppercased() }.first(where: Recording.isAddress)
        }
    }

    /// A device, and what the files have of it.
    package struct Device {
        package let recording: Recording
        /// Whether its attributes were used, or are known: it did not only advertise.
        package let isConnected: Bool
        /// Notifications and writes of attributes that no file explains, and which are therefore left out. Phones and
        /// BlueZ keep the tables of devices that they know, and do not discover them again.
        package let unexplained: Int
    }

    /// A capture is read into memory; larger ones are refused.
    package static let sizeLimit = 256 << 20

    /// Devices whose attributes are known first, then those heard most often.
    package private(set) var devices: [Device] = []

    private var found: [String: CapturedTraffic.Device] = [:]
    private var names: [String: String] = [:]

    /// Reads all files: what one of them lacks of a device, another may have.
    /// - Throws: ``RecordingError``, with the path of the file.
    package init(_ files: [File]) throws(RecordingError) {
        for file in files {
            do throws(RecordingError) { try add(file) } catch {
                throw RecordingError("'\(file.path)' cannot be used: \(error)")
            }
        }
        devices = found.values.map(device).sorted {
            let (one, two) = ($0.recording, $1.recording)
            if $0.isConnected != $1.isConnected { return $0.isConnected }
            if one.advertisements.count != two.advertisements.count {
                return one.advertisements.count > two.advertisements.count
            }
            return one.address ?? "" < two.address ?? ""
        }
    }

    private mutating func add(_ file: File) throws(RecordingError) {
        guard file.content.count <= Self.sizeLimit else {
            throw RecordingError("it is larger than \(Self.sizeLimit >> 20) MiB")
        }
        guard !file.content.starts(with: Btsnoop.magic) else { return try addCapture([UInt8](file.content)) }
        guard let text = String(validating: file.content, as: UTF8.self) else {
            throw RecordingError("it is neither a capture nor a file of BlueZ")
        }
        let storage = try BlueZStorage(text)
        guard let address = file.address else {
            throw RecordingError("the address of the device must be the name of the file, or of its folder")
        }
        let device = known(address)
        device.table.merge(storage.table)
        if let type = storage.addressType { device.addressType = type }
        device.isConnected = true
        if let name = storage.name { names[address] = name }
    }

    private mutating func addCapture(_ content: [UInt8]) throws(RecordingError) {
        var capture = try Btsnoop(content)
        var traffic = CapturedTraffic()
        while let packet = capture.next() { traffic.take(packet) }
        for (address, device) in traffic.devices {
            guard let before = found[address] else {
                found[address] = device
                continue
            }
            // Of two captures the first counts, apart from the table.
            let isBare = before.advertisements.isEmpty && before.notifications.isEmpty && before.writes.isEmpty
            let (kept, other) = isBare ? (device, before) : (before, device)
            kept.table.merge(other.table)
            kept.isConnected = kept.isConnected || other.isConnected
            found[address] = kept
        }
    }

    private mutating func known(_ address: String) -> CapturedTraffic.Device {
        if let device = found[address] { return device }
        let device = CapturedTraffic.Device(address)
        found[address] = device
        return device
    }

    private func device(_ captured: CapturedTraffic.Device) -> Device {
        var recording = Recording(address: captured.address, addressType: captured.addressType, mtu: captured.mtu)
        let heard = captured.advertisements
        recording.name =
            names[captured.address] ?? captured.table.deviceName ?? heard.lazy.compactMap(\.content.localName).last
        let layout = captured.table.layout()
        recording.services = layout.services
        let names = recording.characteristicNames
        let moved = captured.notifications + captured.writes
        // The recording begins with the first that is known of the device.
        let start = min(heard.first?.time ?? .infinity, moved.map(\.time).min() ?? .infinity)
        recording.advertisements = heard.map {
            Recording.Advertisement(time: $0.time - start, rssi: $0.rssi, content: $0.content)
        }
        func events(_ list: [(time: Double, handle: UInt16, value: [UInt8])]) -> [Recording.Event] {
            list.compactMap { time, handle, value in
                layout.places[handle].map {
                    .init(time: time - start, characteristic: names[$0.service][$0.characteristic], value: value)
                }
            }
        }
        recording.notifications = events(captured.notifications)
        recording.writes = events(captured.writes)
        // Writes of descriptors are subscriptions.
        let explained = moved.count { layout.places[$0.handle] != nil || captured.table.types[$0.handle] != nil }
        return Device(
            recording: recording, isConnected: captured.isConnected, unexplained: moved.count - explained)
    }
}
