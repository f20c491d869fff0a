import BluezKitSimulator
import Foundation
import Glibc

/// A file that is being received: `FILE.part` with the bytes so far, and `FILE.part.info`, which says of which file
/// they are. Both stay when the program ends, so that a later one can go on.
final class PartialFile: TransferSink {
    /// One sentence that says what to do.
    typealias Failure = CardFile.Failure

    let path: String
    let offer: TransferOffer
    /// Nil until the first bytes are there: an offer alone does not replace a part of another file.
    private var handle: FileHandle?
    private var hash = SHA256()
    private(set) var count = 0

    private var part: String { path + ".part" }
    private var info: String { path + ".part.info" }

    /// Begins, or continues if the same file was begun before.
    init(_ path: String, _ offer: TransferOffer) throws(Failure) {
        (self.path, self.offer) = (path, offer)
        guard Self.description(in: info) == Self.describe(offer), CardFile.kind(of: part) == S_IFREG else { return }
        do {
            let handle = try opened()
            while let bytes = try handle.read(upToCount: 1 << 20), !bytes.isEmpty {
                hash.update(bytes)
                count += bytes.count
            }
            if count > offer.size {
                try handle.truncate(atOffset: 0)
                (hash, count) = (SHA256(), 0)
            }
        } catch {
            throw failure(error)
        }
    }

    private func opened() throws -> FileHandle {
        if let handle { return handle }
        // Not through a symbolic link that another user has put there.
        let descriptor = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o644)
        guard descriptor >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        try lock(descriptor)
        self.handle = handle
        return handle
    }

    /// As long as it is open. Another program would write into the same file, or give its own the name of this one.
    private func lock(_ descriptor: Int32) throws(Failure) {
        // Some file systems have no locks.
        guard flock(descriptor, LOCK_EX | LOCK_NB) != 0, errno == EWOULDBLOCK else { return }
        throw Failure(message: "another program is receiving into '\(part)'; wait for its end, or choose another name")
    }

    /// The file to write to, in place of a part of another file.
    private func begun() throws -> FileHandle {
        if let handle { return handle }
        // Not what another program is receiving.
        let old = open(part, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)
        defer { if old >= 0 { close(old) } }
        if old >= 0 { try lock(old) }
        // Not a folder, with all that is in it.
        guard unlink(part) == 0 || errno == ENOENT else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        // First, because a part without it, or with that of another file, is of no use.
        try Self.describe(offer).write(to: URL(fileURLWithPath: info), options: .atomic)
        return try opened()
    }

    private func failure(_ error: any Error) -> Failure {
        error as? Failure ?? Failure(message: "'\(part)' cannot be written: \(CardFile.reason(error))")
    }

    private static let title = "bluez-demo transfer\n"

    /// The same text for the same file.
    private static func describe(_ offer: TransferOffer) -> Data {
        Data("\(title)size \(offer.size)\nsha256 \(offer.digest.hex)\n".utf8)
    }

    func append(_ bytes: Data) throws(Failure) {
        do {
            try begun().write(contentsOf: bytes)
        } catch {
            throw failure(error)
        }
        hash.update(bytes)
        count += bytes.count
    }

    /// Gives it its name, if it is what was offered.
    /// - Returns: False: it is damaged, and was deleted.
    func finish() throws(Failure) -> Bool {
        let handle: FileHandle
        do {
            handle = try begun()  // also of an empty file
        } catch {
            throw failure(error)
        }
        guard count == offer.size, hash.digest == offer.digest else {
            unlink(part)
            unlink(info)
            return false
        }
        // The name means that it is complete, also after a power failure.
        guard fsync(handle.fileDescriptor) == 0, rename(part, path) == 0 else {
            let reason = String(cString: strerror(errno))
            throw Failure(message: "'\(path)' cannot be written: \(reason)")
        }
        unlink(info)
        return true
    }

    /// Not through a symbolic link, which can lead to what has no end.
    private static func description(in info: String) -> Data? {
        guard CardFile.kind(of: info) == S_IFREG, let handle = try? CardFile.open(info) else { return nil }
        return try? handle.read(upToCount: 1000)
    }

    /// Reports in advance if a file could not be received there.
    static func checkWritable(_ path: String) throws(Failure) {
        try CardFile.checkWritable(path, for: "transfer receive")
        let (part, info) = (path + ".part", path + ".part.info")
        // A symbolic link is replaced, and not followed.
        for name in [part, info] where ![nil, S_IFREG, S_IFLNK].contains(CardFile.kind(of: name)) {
            throw Failure(
                message: "'\(name)' is in the way, and is not a regular file; move it away, or choose another name")
        }
        guard CardFile.kind(of: part) == S_IFREG || CardFile.kind(of: info) == S_IFREG else { return }
        guard description(in: info)?.starts(with: title.utf8) == true else {
            throw Failure(
                message:
                    "'\(part)' and its .info would be replaced, and are not of an earlier transfer; move them away, "
                    + "or choose another name")
        }
    }
}

/// A file that is being sent.
final class SentFile: TransferSource {
    let path: String
    let offer: TransferOffer
    private let handle: FileHandle

    /// Reads all of it once, for its digest.
    init(_ path: String) throws(CardFile.Failure) {
        self.path = path
        do {
            handle = try CardFile.open(path)
            var (hash, size) = (SHA256(), 0)
            while let bytes = try handle.read(upToCount: 1 << 20), !bytes.isEmpty {
                hash.update(bytes)
                size += bytes.count
            }
            let name = URL(fileURLWithPath: path).lastPathComponent
            offer = TransferOffer(name: name, size: size, digest: hash.digest)
        } catch let failure as CardFile.Failure {
            throw failure
        } catch {
            throw CardFile.Failure(message: "'\(path)' cannot be read: \(CardFile.reason(error))")
        }
    }

    func block(at offset: Int) throws(TransferError) -> Data {
        do {
            try handle.seek(toOffset: UInt64(offset))
            let block = try handle.read(upToCount: min(TransferProtocol.blockSize, offer.size - offset)) ?? Data()
            if !block.isEmpty { return block }
        } catch {
            throw .file("'\(path)' cannot be read: \(CardFile.reason(error))")
        }
        throw .changed(path)
    }
}
