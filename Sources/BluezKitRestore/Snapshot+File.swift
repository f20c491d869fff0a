import Foundation

/// The file format: JSON that a person can read, with a version.
extension Snapshot {
    /// Why a file cannot be used.
    package enum FileError: Error, Equatable, CustomStringConvertible {
        case empty
        case tooLarge(bytes: Int)
        /// Written by a later BluezKit.
        case unknownVersion(Int)
        /// No JSON, or not the JSON of a snapshot; with where and what.
        case malformed(String)

        package var description: String {
            switch self {
            case .empty: "the file is empty"
            case .tooLarge(let bytes): "the file has \(bytes) bytes, and at most \(maximumBytes) are believed"
            case .unknownVersion(let version):
                "the file has version \(version); this BluezKit knows versions 1 to \(currentVersion)"
            case .malformed(let what): what
            }
        }
    }

    /// The version that is written. A new one is needed where an older BluezKit would misread the file; new keys that it
    /// may ignore need none.
    package static let currentVersion = 1
    /// What turns a file of version n into one of version n + 1, at index n - 1.
    package static let migrations: [Migration] = []
    package typealias Migration = @Sendable (inout [String: Any]) throws -> Void
    /// Far more than any app has intents.
    package static let maximumBytes = 16 << 20

    private struct Version: Codable { var version: Int }

    private struct File: Codable {
        var version: Int
        var snapshot: Snapshot

        init(_ snapshot: Snapshot) { (version, self.snapshot) = (Snapshot.currentVersion, snapshot) }

        // One level: `version` stands among the snapshot's own keys.
        init(from decoder: any Decoder) throws {
            version = try Version(from: decoder).version
            snapshot = try Snapshot(from: decoder)
        }

        func encode(to encoder: any Encoder) throws {
            try Version(version: version).encode(to: encoder)
            try snapshot.encode(to: encoder)
        }
    }

    /// The content of the file.
    package func fileContent() throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        encoder.dateEncodingStrategy = .iso8601
        return try encoder.encode(File(self)) + Data("\n".utf8)
    }

    /// Reads the content of a file, whatever it is. Never traps.
    /// - Parameter migrations: For tests; the version that is read is one more than their number.
    package init(fileContent data: Data, migrations: [Migration] = Snapshot.migrations) throws(FileError) {
        guard !data.isEmpty else { throw .empty }
        guard data.count <= Self.maximumBytes else { throw .tooLarge(bytes: data.count) }
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        do {
            let version = try decoder.decode(Version.self, from: data).version
            guard version >= 1, version <= migrations.count + 1 else { throw FileError.unknownVersion(version) }
            var data = data
            if version <= migrations.count {
                guard var object = try JSONSerialization.jsonObject(with: data) as? [String: Any] else {
                    throw FileError.malformed("the file holds no JSON object")
                }
                for migration in migrations[(version - 1)...] { try migration(&object) }
                data = try JSONSerialization.data(withJSONObject: object)
            }
            self = try decoder.decode(File.self, from: data).snapshot
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
