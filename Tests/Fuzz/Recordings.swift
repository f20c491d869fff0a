import BluezKitSimulator
import Foundation

/// What recordings are read from, and made of.
enum Recordings {
    /// A recording. What was read can be written, read again, and replayed.
    static func file(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let recording = try? Recording(fileContent: Data(bytes)) else { return }
        check(recording)
    }

    /// A btsnoop capture.
    static func capture(_ bytes: UnsafeBufferPointer<UInt8>) { check("capture", bytes) }

    /// A file in which BlueZ keeps a table.
    static func cache(_ bytes: UnsafeBufferPointer<UInt8>) { check("/cache/F0:11:22:00:00:01", bytes) }

    private static func check(_ path: String, _ bytes: UnsafeBufferPointer<UInt8>) {
        guard let found = try? RecordingImport([.init(path: path, content: Data(bytes))]) else { return }
        for device in found.devices { check(device.recording) }
    }

    private static func check(_ recording: Recording) {
        do throws(RecordingError) {
            let content = try recording.fileContent()
            let again = try Recording(fileContent: content)
            precondition(again.services == recording.services, "\(recording.services) became \(again.services)")
            let sizes = [again, recording].map { [$0.advertisements.count, $0.notifications.count, $0.writes.count] }
            precondition(sizes[0] == sizes[1], "\(sizes)")
            _ = try recording.anonymized().fileContent()
        } catch { preconditionFailure("cannot read what was written: \(error)") }
        _ = VirtualPeripheral(recording: recording)
    }
}
