import BluezKitSimulator
import Foundation

/// Reading and writing the files of recordings.
enum RecordingFile {
    static func read(_ path: String) throws(CardFile.Failure) -> Recording {
        let content = try content(of: path, limit: Recording.sizeLimit)
        do throws(RecordingError) {
            return try Recording(fileContent: content)
        } catch {
            throw CardFile.Failure(message: "'\(path)' is not a recording: \(error)")
        }
    }

    static func write(_ recording: Recording, to path: String) throws(CardFile.Failure) {
        let content: Data
        do throws(RecordingError) { content = try recording.fileContent() } catch {
            throw CardFile.Failure(message: "the recording cannot be written: \(error)")
        }
        try CardFile.write(content, to: path)
    }

    /// - Parameter limit: The most bytes that it may have.
    static func content(of path: String, limit: Int) throws(CardFile.Failure) -> Data {
        let handle = try CardFile.open(path)
        let content: Data
        do {
            // One byte more than allowed, because a file can grow.
            content = try handle.read(upToCount: limit + 1) ?? Data()
        } catch {
            throw CardFile.Failure(message: "'\(path)' cannot be read: \(CardFile.reason(error))")
        }
        guard content.count <= limit else {
            throw CardFile.Failure(message: "'\(path)' is larger than \(limit >> 20) MiB")
        }
        return content
    }
}

/// What a recording has, in numbers.
struct RecordingSummary: Equatable {
    let path: String
    let address: String?
    let name: String?
    let advertisements: Int
    let services: Int
    let characteristics: Int
    let values: Int
    let notifications: Int
    let writes: Int
    /// Of attributes that nothing explains.
    var unexplained = 0

    init(_ recording: Recording, path: String, unexplained: Int = 0) {
        let all = recording.services.flatMap(\.characteristics)
        (self.path, address, name) = (path, recording.address, recording.name)
        (advertisements, services) = (recording.advertisements.count, recording.services.count)
        characteristics = all.count
        values = all.count { $0.value != nil }
        (notifications, writes) = (recording.notifications.count, recording.writes.count)
        self.unexplained = unexplained
    }

    var json: JSONValue {
        [
            "event": "recorded", "path": .string(path), "address": .optional(address), "name": .optional(name),
            "advertisements": .int(advertisements), "services": .int(services),
            "characteristics": .int(characteristics), "values": .int(values), "notifications": .int(notifications),
            "writes": .int(writes), "unexplained": .int(unexplained),
        ]
    }

    /// A device in a capture.
    var capturedJSON: JSONValue {
        [
            "event": "captured", "address": .optional(address), "name": .optional(name),
            "advertisements": .int(advertisements), "services": .int(services), "notifications": .int(notifications),
            "writes": .int(writes),
        ]
    }

    /// The end of a sentence.
    var text: String {
        func count(_ number: Int, _ one: String, _ many: String) -> String { "\(number) \(number == 1 ? one : many)" }
        return [
            count(advertisements, "advertisement", "advertisements"), count(services, "service", "services"),
            count(characteristics, "characteristic", "characteristics") + " (\(values) with a value)",
            count(notifications, "notification", "notifications"), count(writes, "write", "writes"),
        ].joined(separator: ", ")
    }
}
