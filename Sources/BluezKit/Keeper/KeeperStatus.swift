import Foundation

/// What a keeper does for one manager.
package struct KeeperStatus: Codable, Sendable {
    /// `central` or `peripheral`.
    package let role: String
    /// The manager's state file.
    package let statePath: String
    /// The process of the app; nil: it is not running.
    package let app: Int32?
    /// When the app's process came, or ended, in seconds since 2001. No `Date`: Swift 6.0 demands another import for it
    /// than later ones permit.
    package let since: Double
    /// How many events wait for the app, and their size.
    package let events: Int
    package let bytes: Int
    /// How many did not fit.
    package let dropped: Int
    /// How often the app was started.
    package let starts: Int
    package let lastStart: Double?
    /// Why: "a value".
    package let lastReason: String?
    /// How the app is started, in words.
    package let relaunch: String
    /// It has ended at once too often, and is not started any more.
    package let isGivenUp: Bool
}

extension Keeper {
    /// - Returns: Nil: no keeper runs.
    package static func status() throws -> [KeeperStatus]? {
        guard let socket = try running() else { return nil }
        return try BorderFormat.decode([KeeperStatus].self, from: ask(socket, Frame(kind: .status, body: Data())))
    }

    /// Ends what the keeper does for the app that has this state file. Does nothing if there is no keeper.
    /// - Throws: Why not: the app is running.
    package static func discard(_ statePath: String) throws {
        guard let socket = try running(isOfAnyVersion: true) else { return }
        _ = try ask(socket, Frame(kind: .discard, body: Data(statePath.utf8)))
    }

    /// Ends the keeper that runs, so that this program can take its place. - Throws: Why not.
    /// - Parameter isOlder: Only if that is so.
    package static func endRunning(ifOlder isOlder: Bool) throws {
        do throws(Failure) {
            if try running() == nil || isOlder { return }
        } catch {
            guard case .otherVersion(1..<BorderFormat.version) = error else { throw error }
        }
        guard let socket = try running(isOfAnyVersion: true) else { return }
        var reader = FrameReader()
        defer { reader.end() }
        // Its lock is free when its sockets are closed. Another one may have asked for that before.
        guard socket.sendAll(.version(as: .replace)) else { return }
        while true {
            switch socket.receive(into: &reader, waits: true) {
            case .ended: return
            case .notReady: throw Failure.noAnswer
            case .bytes: break
            }
            while let frame = try reader.next() {
                frame.closeDescriptors()
                if frame.kind == .refusal { throw Failure.refused(String(decoding: frame.body, as: UTF8.self)) }
            }
        }
    }

    /// The app's manager has its core in this process from now on. Starts no keeper.
    static func leave(_ statePath: String) {
        guard let path, (try? checkDirectory(of: path)) == true else { return }
        let lock = open(path + ".lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard lock >= 0 else {
            if errno == ENOENT { return }  // there has never been one
            let error = POSIXError(POSIXErrorCode(rawValue: errno) ?? .EACCES)
            return Log.warning("what a keeper does for \(statePath) could not be ended: \(error.localizedDescription)")
        }
        defer { close(lock) }
        // One that was killed has left a journal for the next one.
        if flock(lock, LOCK_EX | LOCK_NB) == 0 { return KeeperJournal(socket: path).strike(statePath) }
        do { try discard(statePath) } catch {
            Log.warning("what a keeper does for \(statePath) could not be ended: \(error)")
        }
    }

    private static func ask(_ socket: KeeperSocket, _ question: Frame) throws -> Data {
        var reader = FrameReader()
        defer { reader.end() }
        guard socket.sendAll(question) else { throw Failure.noAnswer }
        while case .bytes = socket.receive(into: &reader, waits: true) {
            guard let frame = try reader.next() else { continue }
            frame.closeDescriptors()
            switch frame.kind {
            case .answer: return frame.body
            case .refusal: throw Failure.refused(String(decoding: frame.body, as: UTF8.self))
            default: throw Failure.noAnswer
            }
        }
        throw Failure.noAnswer
    }
}
