import Foundation
import Glibc

/// Reading and writing the files of cards.
enum CardFile {
    /// One sentence that says what to do.
    struct Failure: Error, Equatable { let message: String }

    /// Opens a regular file to read it. To open another one may take forever, as a named pipe waits for a writer, and
    /// the queue that answers Ctrl-C would wait with it.
    static func open(_ path: String) throws(Failure) -> FileHandle {
        let descriptor = Glibc.open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw Failure(message: "'\(path)' cannot be read: \(String(cString: strerror(errno)))")
        }
        let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw Failure(message: "'\(path)' is not a regular file")
        }
        return handle
    }

    /// `S_IFREG` and so on, of what has this name itself; nil: nothing has it.
    static func kind(of path: String) -> mode_t? {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & S_IFMT : nil
    }

    static func read(_ path: String) throws(Failure) -> Data {
        let handle = try open(path)
        let card: Data
        do {
            // One byte more than allowed, because a file can grow.
            card = try handle.read(upToCount: Card.sizeLimit + 1) ?? Data()
        } catch {
            throw Failure(message: "'\(path)' cannot be read: \(reason(error))")
        }
        guard card.count <= Card.sizeLimit else {
            throw Failure(
                message: "'\(path)' is larger than the \(Card.sizeLimit) bytes that a card may have; "
                    + "leave out its photo")
        }
        return card
    }

    /// Replaces the file, completely or not at all.
    static func write(_ card: Data, to path: String) throws(Failure) {
        do {
            try card.write(to: URL(fileURLWithPath: path), options: .atomic)
        } catch {
            throw Failure(message: "'\(path)' cannot be written: \(reason(error))")
        }
    }

    /// Reports in advance if a file could not be written there.
    /// - Parameter user: The option or command that needs the file.
    static func checkWritable(_ path: String, for user: String = "--output") throws(Failure) {
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent().path
        var isFolder: ObjCBool = false
        let exists = FileManager.default.fileExists(atPath: path, isDirectory: &isFolder)
        guard !path.hasSuffix("/"), !exists || !isFolder.boolValue else {
            throw Failure(message: "'\(path)' is a folder; \(user) needs the name of a file")
        }
        guard [nil, S_IFREG].contains(kind(of: path)) else {
            throw Failure(message: "'\(path)' is not a regular file, and would be replaced; choose another name")
        }
        guard FileManager.default.fileExists(atPath: folder, isDirectory: &isFolder), isFolder.boolValue else {
            throw Failure(message: "there is no folder '\(folder)' to write to; make it first")
        }
        guard access(folder, W_OK) == 0 else {
            throw Failure(message: "this user may not write to the folder '\(folder)'; choose another for \(user)")
        }
    }

    static func reason(_ error: any Error) -> String {
        let error = error as NSError
        // On Linux a POSIXError, which a cast to NSError alone does not find.
        let cause = (error.userInfo[NSUnderlyingErrorKey] as? any Error).map { $0 as NSError } ?? error
        return cause.domain == NSPOSIXErrorDomain ? String(cString: strerror(Int32(cause.code))) : error.sentence
    }
}
