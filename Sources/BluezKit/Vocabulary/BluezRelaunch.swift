import BluezDBus
import BluezKitRestore
import Foundation

/// **BluezKit addition.** How a keeper starts an app again that has died: the value of ``BluezManagerOptionKeeperKey``.
///
/// ```swift
/// let central = CBCentralManager(
///     delegate: self, queue: queue,
///     options: [
///         CBCentralManagerOptionRestoreIdentifierKey: "heart",
///         BluezManagerOptionKeeperKey: BluezRelaunch.unit("heart-rate.service"),
///     ])
/// ```
/// An app is started when something has happened that it waits for: a connect has completed, a link has ended, a value
/// has come, a scan has found something, a central reads, writes, subscribes or unsubscribes. That is once for all that
/// happens until the app has made its manager again; an app that dies again and again is started less and less often,
/// and finally not any more, which the keeper's log says. Nothing that a remote device has sent has any part in what is
/// started.
public struct BluezRelaunch: Codable, Hashable, Sendable, CustomStringConvertible {
    enum Way: Codable, Hashable, Sendable {
        case never
        case command([String], directory: String, environment: [String: String])
        case unit(String)
        case busName(String)
    }

    let way: Way

    /// Whether two programs that are started in this way are one app.
    var namesApp: Bool {
        switch way {
        case .unit, .busName: true
        case .never, .command: false
        }
    }

    /// It is not started: what happens waits until someone starts it.
    public static let never = BluezRelaunch(way: .never)

    /// A unit of the user's systemd, such as `heart-rate.service`.
    public static func unit(_ name: String) -> BluezRelaunch { BluezRelaunch(way: .unit(name)) }

    /// A name on the user's bus that starts the app (D-Bus activation), such as `org.example.HeartRate`.
    public static func busName(_ name: String) -> BluezRelaunch { BluezRelaunch(way: .busName(name)) }

    /// A program with its arguments, without a shell.
    /// - Parameters:
    ///   - words: The path of the program, and its arguments.
    ///   - directory: Where it runs. Default: that of this process.
    ///   - variables: All of its environment. Default: that of this process.
    public static func command(
        _ words: [String], directory: String? = nil, environment variables: [String: String]? = nil
    ) -> BluezRelaunch {
        BluezRelaunch(
            way: .command(
                words, directory: directory ?? FileManager.default.currentDirectoryPath,
                environment: variables ?? ownEnvironment))
    }

    /// This program as it was started: its arguments, directory and environment.
    public static var thisProgram: BluezRelaunch {
        .command([StateDirectory.app] + CommandLine.arguments.dropFirst())
    }

    /// Such as `unit heart-rate.service`.
    public var description: String {
        switch way {
        case .never: "never"
        case .command(let words, _, _): "command \(words.joined(separator: " "))"
        case .unit(let name): "unit \(name)"
        case .busName(let name): "bus name \(name)"
        }
    }
}
