import Testing

@testable import BluezKit

/// Docs/ERRORS.md is generated from the table in ErrorMapping.swift. To regenerate it:
/// `BLUEZKIT_WRITE_DOCS=1 swift test --filter ErrorsDocumentTests`.
@Suite struct ErrorsDocumentTests {
    private static let path = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Docs/ERRORS.md")

    @Test("ERR-8 Docs/ERRORS.md matches the table of errors")
    func isUpToDate() throws {
        let text = Self.document()
        if ProcessInfo.processInfo.environment["BLUEZKIT_WRITE_DOCS"] != nil {
            try text.write(to: Self.path, atomically: true, encoding: .utf8)
        }
        let published = try? String(contentsOf: Self.path, encoding: .utf8)
        #expect(
            published == text,
            "stale: run `BLUEZKIT_WRITE_DOCS=1 swift test --filter ErrorsDocumentTests` and commit the file")
    }

    private static func document() -> String {
        var lines = [
            "# Errors: from BlueZ to CoreBluetooth",
            "",
            "Generated from `Sources/BluezKit/BlueZ/ErrorMapping.swift`, the only place where errors are translated.",
            "Do not edit: change the table there, then run",
            "`BLUEZKIT_WRITE_DOCS=1 swift test --filter ErrorsDocumentTests`.",
            "",
            "Each error that originates in BlueZ carries BlueZ's own error name and message:",
            "",
            "<!-- snippet",
            "import BluezKit",
            "func example(error: any Error) {",
            "{block}",
            "}",
            "-->",
            "```swift",
            "if let cause = (error as NSError).userInfo[NSUnderlyingErrorKey] as? NSError, cause.domain == BluezErrorDomain {",
            "    print(cause.userInfo[BluezErrorNameKey] ?? \"\", cause.userInfo[BluezErrorMessageKey] ?? \"\")",
            "}",
            "```",
            "",
            "## Replies to calls",
            "",
            "The first matching row applies; `*` stands for any text.",
            "",
            "| Operation | Error name | Message | The app gets | Meaning |",
            "|---|---|---|---|---|",
        ]
        for row in ErrorMapping.rows {
            let contexts =
                row.contexts == BlueZErrorContext.allCases
                ? "anything" : row.contexts.map(\.rawValue).joined(separator: ", ")
            let message = row.message == "*" ? "any" : "`\(row.message)`"
            let name = row.name == "*" ? "any" : "`\(row.name)`"
            lines.append("| \(contexts) | \(name) | \(message) | \(text(row.result)) | \(row.meaning) |")
        }
        lines += [
            "",
            "## L2CAP channels",
            "",
            "A channel is a socket of the kernel. The underlying error is the kernel's (`NSPOSIXErrorDomain`).",
            "",
            "| Step | `errno` | The app gets | Meaning |",
            "|---|---|---|---|",
        ]
        for row in SocketFailure.rows {
            let steps =
                row.steps == SocketFailure.Step.allCases ? "any" : row.steps.map(\.rawValue).joined(separator: ", ")
            let codes = row.codes.map { "`\(SocketFailure.name(of: $0))`" }.joined(separator: ", ")
            lines.append("| \(steps) | \(codes) | \(text(.cb(row.result))) | \(row.meaning) |")
        }
        lines += [
            "",
            "## Disconnections",
            "",
            "What `didDisconnectPeripheral` reports if the app did not request the disconnection. BlueZ before 5.83 gives no",
            "reason, which is treated as `org.bluez.Reason.Unknown`.",
            "",
            "| Reason | The app gets | Meaning |",
            "|---|---|---|",
        ]
        for row in ErrorMapping.disconnectRows {
            lines.append("| `\(row.name)` | \(text(row.result)) | \(row.meaning) |")
        }
        lines += [
            "",
            "## Responses to a central",
            "",
            "What the central gets when a peripheral manager calls `respond(to:withResult:)`. BlueZ cannot express the other",
            "codes; encryption and pairing are required through permissions and properties, not through responses.",
            "",
            "| The app responds | Error name for BlueZ | The central gets |",
            "|---|---|---|",
        ]
        for row in ErrorMapping.answerRows {
            lines.append("| \(row.codes.map(text).joined(separator: ", ")) | `\(row.name)` | \(row.onAir) |")
        }
        let (low, high) = (ErrorMapping.applicationCodes.lowerBound, ErrorMapping.applicationCodes.upperBound)
        let range = "0x\(String(low, radix: 16)) to 0x\(String(high, radix: 16))"
        lines.append("| code \(range) | `org.bluez.Error.Failed` with the code as message | that code |")
        lines.append("| any other | `\(ErrorMapping.unlistedAnswer)` | 0x0e: the code is lost |")
        return lines.joined(separator: "\n") + "\n"
    }

    private static func text(_ result: ErrorMapping.Result) -> String {
        switch result {
        case .cb(let code): text(code)
        case .att(let code): text(code)
        case .attIfBonded(let bonded, let other): "\(text(other)); if bonded \(text(bonded))"
        case .cbIfBonded(let bonded, let other): "\(text(other)); if bonded \(text(bonded))"
        case .attInMessage: "`CBATTError` with that code"
        }
    }

    private static func text(_ code: CBError.Code) -> String {
        "`CBError.\(code == .unknownDevice ? "unknownDevice" : "\(code)")` (\(code.rawValue))"
    }

    private static func text(_ code: CBATTError.Code) -> String {
        let names = [
            "success", "invalidHandle", "readNotPermitted", "writeNotPermitted", "invalidPdu",
            "insufficientAuthentication", "requestNotSupported", "invalidOffset", "insufficientAuthorization",
            "prepareQueueFull", "attributeNotFound", "attributeNotLong", "insufficientEncryptionKeySize",
            "invalidAttributeValueLength", "unlikelyError", "insufficientEncryption", "unsupportedGroupType",
            "insufficientResources",
        ]
        guard names.indices.contains(code.rawValue) else {
            return "`CBATTError` with code 0x\(String(code.rawValue, radix: 16))"
        }
        return "`CBATTError.\(names[code.rawValue])` (\(code.rawValue))"
    }
}
