import BluezKitRestore
import Foundation

/// A line of a trace: what passed the border of one manager, or happened to a process.
struct TraceLine: Codable, Sendable {
    /// Seconds since 1970, by the system clock, which may be adjusted.
    let wall: Double
    /// Seconds since the computer was started, including those in which it slept: the same for all processes.
    let clock: Double
    let process: Int32
    /// By the count of the process, from 1; nil: it is about the process.
    let manager: Int?
    let message: TraceMessage
}

/// What a line tells. Role and direction of a message are in the name of its case, which is in the file.
enum TraceMessage: Codable, Sendable {
    /// A process has opened the file: before its other lines.
    case began(TraceHeader)
    /// The app has made a manager.
    case made(TraceManager)
    case released
    /// The version of BlueZ, where the core is in this process and knows it.
    case daemon(String)
    case centralRequest(CentralMessage)
    case centralEvent(CentralEvent)
    case peripheralRequest(PublishMessage)
    case peripheralEvent(PublishEvent)
    /// `updateValue` has returned false.
    case noRoom(LocalAttributeID)
    /// The app waits for the answer, which comes next.
    case query(DeviceQuery)
    case devices([KnownDevice])
    case bytes(TraceBytes)
    /// A line of the library's log, as of a call that was dropped: that does not pass the border.
    case log(level: String, text: String)
    /// In place of a message that is too long, or cannot be written down.
    case omitted(String)
    /// The file is as large as it may be, in bytes: the process writes nothing more.
    case full(limit: Int64)
}

/// Who writes.
struct TraceHeader: Codable, Sendable {
    /// Of this library.
    let version: String
    /// ``BorderFormat/version``.
    let border: Int
    /// The name of the program, without its arguments, which may be secret.
    let program: String
    /// Linux and its version.
    let system: String
    /// ``StateDirectory/boot``: what `clock` counts from.
    let boot: String
    /// Whether values are zeros, as many as there were bytes.
    let hidesValues: Bool
}

/// What the app has set when it made a manager.
struct TraceManager: Codable, Sendable {
    let role: Snapshot.Role
    /// Of the bus.
    let address: String
    /// The adapter that it asks for; nil: any.
    let adapter: String?
    /// The restore identifier.
    let identifier: String?
    /// Whether it asks for a keeper.
    let isKept: Bool
}

/// What a stream of an L2CAP channel has moved in one call.
struct TraceBytes: Codable, Sendable {
    let channel: UInt32
    /// To the app.
    let isInput: Bool
    let count: Int
    /// At most ``limit``.
    let first: Data

    /// A file of many megabytes may move through a channel.
    static let limit = 64
}
