package import Foundation

/// The file format: the snapshot as human-readable JSON, with a version, followed by one line of JSON for each change
/// since, so that a change costs one line. The first line that cannot be read ends the file: it was torn by a power
/// cut.
extension Snapshot {
    /// Why a file cannot be used.
    package enum FileError: Error, Equatable, CustomStringConvertible {
        case empty
        case tooLarge(bytes: Int)
        /// Written by a later BluezKit.
        case unknownVersion(Int)
        /// Not JSON, or not the JSON of a snapshot; with the position and the fault.
        case malformed(String)

        package var description: String {
            switch self {
            case .empty: "the file is empty"
            case .tooLarge(let bytes): "the file has \(bytes) bytes, and at most \(maximumBytes) are read"
            case .unknownVersion(let version):
                "the file has version \(version); this BluezKit supports versions 1 to \(currentVersion)"
            case .malformed(let what): what
            }
        }
    }

    /// The version that is written. A new version is needed if an older BluezKit would misread the file; new keys that
    /// it can ignore do not need one.
    package static let currentVersion = 1
    /// Converts a file of version n to version n + 1, at index n - 1.
    package static let migrations: [Migration] = []
    package typealias Migration = @Sendable (inout [String: Any]) throws -> Void
    /// The maximum size of a file. Far more than any app needs.
    package static let maximumBytes = 16 << 20
    /// Ends the snapshot: everything inside it is indented.
    private static let end = Data("\n}\n".utf8)

    private struct Version: Codable { var version: Int }

    private struct File: Codable {
        var version: Int
        var snapshot: Snapshot

        init(_ snapshot: Snapshot) { (version, self.snapshot) = (Snapshot.currentVersion, snapshot) }

        // One level: `version` is one of the snapshot's own keys.
        init(from decoder: any Decoder) throws {
            version = try Version(from: decoder).version
            snapshot = try Snapshot(from: decoder)
        }

        func encode(to encoder: any Encoder) throws {
            try Version(version: version).encode(to: encoder)
            try snapshot.encode(to: encoder)
        }
    }

    private struct Line: Codable {
        var saved: Date
        var change: Change
    }

    /// The content of the file.
    package func fileContent() throws -> Data {
        try Self.encoder(.prettyPrinted).encode(File(self)) + Data("\n".utf8)
    }

    /// The line to append for a change.
    package static func lines(_ changes: [Change], saved: Date) throws -> Data {
        let encoder = encoder([])
        return try changes.reduce(into: Data()) { lines, change in
            lines += try encoder.encode(Line(saved: saved, change: change))
            lines.append(0x0A)
        }
    }

    private static func encoder(_ formatting: JSONEncoder.OutputFormatting) -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = formatting.union([.sortedKeys, .withoutEscapingSlashes])
        encoder.dateEncodingStrategy = .iso8601
        return encoder
    }

    /// Reads any content of a file. Never traps.
    /// - Parameter migrations: For tests; the version that is read is one more than their number.
    package init(fileContent data: Data, migrations: [Migration] = Snapshot.migrations) throws(FileError) {
        self = try Self.read(data, migrations).snapshot
    }

    /// The same, with the number of bytes used: fewer than all if the end is torn.
    static func read(
        _ data: Data, _ migrations: [Migration] = Snapshot.migrations
    ) throws(FileError) -> (snapshot: Snapshot, headBytes: Int, bytes: Int) {
        guard !data.isEmpty else { throw .empty }
        guard data.count <= maximumBytes else { throw .tooLarge(bytes: data.count) }
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        let headEnd = data.range(of: end)?.upperBound ?? data.endIndex
        var snapshot = try Snapshot(head: data[..<headEnd], decoder, migrations)
        var position = headEnd
        while let lineEnd = data[position...].firstIndex(of: 0x0A),
            let line = try? decoder.decodeSafely(Line.self, from: data[position..<lineEnd])
        {
            snapshot.saved = line.saved
            _ = snapshot.apply(line.change)
            position = lineEnd + 1
        }
        return (snapshot, headEnd - data.startIndex, position - data.startIndex)
    }

    private init(head data: Data, _ decoder: JSONDecoder, _ migrations: [Migration]) throws(FileError) {
        do {
            let version = try decoder.decodeSafely(Version.self, from: data).version
            guard version >= 1, version <= migrations.count + 1 else { throw FileError.unknownVersion(version) }
            var data = data
            if version <= migrations.count {
                guard var object = try JSONSerialization.jsonObject(with: data) as? [String: Any] else {
                    throw FileError.malformed("the file does not contain a JSON object")
                }
                for migration in migrations[(version - 1)...] { try migration(&object) }
                data = try JSONSerialization.data(withJSONObject: object)
            }
            self = try decoder.decodeSafely(File.self, from: data).snapshot
        } catch let error as FileError {
            throw error
        } catch let error as DecodingError {
            throw .malformed(error.sentence)
        } catch {
            throw .malformed("\(error)")
        }
    }
}

extension DecodingError {
    /// What is wrong, and where.
    fileprivate var sentence: String {
        switch self {
        case .dataCorrupted(let context): context.codingPath.text + context.debugDescription
        case .keyNotFound(let key, let context): context.codingPath.text + "\"\(key.stringValue)\" is missing"
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            context.codingPath.text + context.debugDescription
        @unknown default: "\(self)"
        }
    }
}

extension [any CodingKey] {
    fileprivate var text: String {
        isEmpty ? "" : map { $0.intValue.map { "[\($0)]" } ?? "." + $0.stringValue }.joined() + ": "
    }
}
