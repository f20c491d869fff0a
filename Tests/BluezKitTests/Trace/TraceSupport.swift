import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

/// A file in a directory of its own, which is removed with the test.
struct TracePath {
    let directory: TemporaryDirectory
    var path: String { directory.path + "/trace" }

    init() throws { directory = try TemporaryDirectory() }

    var text: String { (try? String(contentsOfFile: path, encoding: .utf8)) ?? "" }
    var data: Data { FileManager.default.contents(atPath: path) ?? Data() }
    var mode: mode_t {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
    }

    func items() -> [TraceReader.Item] { Array(reading: data) }

    /// What is shown of it, one line each: direction, name and so on.
    func shown() throws -> [String] { try items().map { try $0.get().shown } }
}

extension [TraceReader.Item] {
    init(reading data: Data) {
        var reader = TraceReader()
        self = reader.read(data)
        if let last = reader.end() { append(last) }
    }

    var damages: [TraceReader.Damage] {
        compactMap { item in
            guard case .failure(let damage) = item else { return nil }
            return damage
        }
    }
}

extension TraceEntry {
    var shown: String {
        let arrow = direction.map { $0 == .toCore ? "->" : "<-" }
        let bytes = value.map { $0.isHidden ? "[\($0.count) bytes]" : "\([UInt8]($0.bytes))" }
        let words = [arrow, name, device, attribute, bytes].compactMap { $0 }.joined(separator: " ")
        return ([words] + facts + (error.map { [$0] } ?? [])).joined(separator: ", ")
    }
}

extension TraceManager {
    static let central = TraceManager(
        role: .central, address: "unix:path=/x", adapter: "hci1", identifier: "app", isKept: false)
    static let peripheral = TraceManager(
        role: .peripheral, address: "unix:path=/x", adapter: nil, identifier: nil, isKept: true)
}

func element(_ text: String) throws -> PathElement { try #require(PathElement(text)) }
func attributeUUID(_ text: String) throws -> AttributeUUID { try #require(AttributeUUID(text)) }
