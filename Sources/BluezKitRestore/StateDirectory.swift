import Foundation

/// The directory of an app's state, with one file for each role and identifier.
package struct StateDirectory: Codable, Equatable, Sendable {
    package let path: String

    package init(path: String) { self.path = path }

    /// The first of: the app's option, `BLUEZKIT_STATE_DIR`, the directory that systemd provides for `StateDirectory=`,
    /// and the user's state directory.
    /// - Parameters:
    ///   - choice: The app's option. Like the variables, it may be relative to the working directory.
    ///   - value: Returns the value of an environment variable; nil for an empty one.
    ///   - app: The path of the executable; its name is used for the directory in the user's home.
    /// - Returns: Nil if there is no home directory.
    /// - SeeAlso: systemd.exec(5), `StateDirectory=`; XDG Base Directory Specification, `XDG_STATE_HOME`.
    package init?(choice: String?, environment value: (String) -> String?, app: String) {
        let found: String
        if let choice, !choice.isEmpty {
            found = choice
        } else if let directory = value("BLUEZKIT_STATE_DIR") {
            found = directory
        } else if let first = value("STATE_DIRECTORY")?.split(separator: ":").first {
            found = first + "/bluezkit"
        } else {
            let name = app.split(separator: "/").last.map(String.init) ?? "app"
            // The specification requires that relative paths are ignored.
            let home = value("XDG_STATE_HOME").flatMap { $0.hasPrefix("/") ? $0 : nil }
            guard let base = home ?? value("HOME").map({ $0 + "/.local/state" }) else { return nil }
            found = "\(base)/\(name)/bluezkit"
        }
        // A keeper, and who looks for orphaned links, are in other directories; and this process may change its own.
        path = found.hasPrefix("/") ? found : FileManager.default.currentDirectoryPath + "/" + found
    }

    /// The path of this process' executable. If a running program was updated, the kernel appends " (deleted)".
    package static let app = program(of: "/proc/self") ?? CommandLine.arguments.first ?? "app"

    /// - Parameter process: Its directory in `/proc`.
    package static func program(of process: String) -> String? {
        var buffer = [CChar](repeating: 0, count: 4096)
        let count = readlink(process + "/exe", &buffer, buffer.count - 1)
        guard count > 0 else { return nil }
        let path = String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return path.hasSuffix(" (deleted)") ? String(path.dropLast(10)) : path
    }

    /// Identifies this start of the computer.
    package static let boot: String =
        (try? String(contentsOfFile: "/proc/sys/kernel/random/boot_id", encoding: .utf8))?
        .trimmingCharacters(in: .whitespacesAndNewlines) ?? "unknown"

    /// `central-heart-rate.json`. Identifiers may be any text; characters that a file name cannot contain are written
    /// as `%2F`.
    package func file(_ role: Snapshot.Role, _ identifier: String) -> String {
        var name = ""
        for byte in identifier.utf8 {
            let scalar = Unicode.Scalar(byte)
            let isPlain = byte < 128 && (scalar.properties.isAlphabetic || (0x30...0x39).contains(byte))
            name +=
                isPlain || "-_. ".unicodeScalars.contains(scalar)
                ? String(Character(scalar)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }
        // A name has at most 255 bytes, including the prefix and suffix.
        if name.utf8.count > 200 { name = name.prefix(180) + "~" + Digest.text(of: identifier) }
        return "\(path)/\(role.rawValue)-\(name).json"
    }

    /// The paths of all state files, sorted by name.
    package func files() -> [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
        return names.filter { name in
            name.hasSuffix(".json") && Snapshot.Role.allCases.contains { name.hasPrefix($0.rawValue + "-") }
        }.sorted().map { "\(path)/\($0)" }
    }
}

/// A digest that is the same in every process: FNV-1a. Detects changes, but not tampering.
package enum Digest {
    package static func text(of text: String) -> String {
        let hash = text.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return String(hash, radix: 16)
    }
}
