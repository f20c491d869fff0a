import BluezKitSimulator
import Foundation

/// How many sockets this process has open. Other descriptors come and go: each thread with a run loop has three.
func openSockets() -> Int { socketNames().count }

/// How many of them are of L2CAP channels, the simulator's included: of others a busy simulator makes some at any time.
func channelSockets() -> Int {
    socketNames().count { $0.family == sa_family_t(AF_BLUETOOTH) || $0.name.hasPrefix("\0bluezkit-l2cap/") }
}

private func socketNames() -> [(family: sa_family_t, name: String)] {
    let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
    return all.compactMap(Int32.init).compactMap { descriptor in
        var address = sockaddr_un()
        var size = socklen_t(MemoryLayout.size(ofValue: address))
        return withUnsafeMutableBytes(of: &address) { bytes in
            guard let start = bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self),
                getsockname(descriptor, start, &size) == 0
            else { return nil }
            let name = bytes[MemoryLayout<sa_family_t>.size..<min(Int(size), bytes.count)]
            return (start.pointee.sa_family, String(decoding: name, as: UTF8.self))
        }
    }
}

/// Runs `body` while the kernel limits this process further.
@discardableResult
func withResourceLimit<Result>(
    _ resource: __rlimit_resource, _ value: rlim_t, _ body: () throws -> Result
) rethrows -> Result {
    let resource = __rlimit_resource_t(UInt32(resource.rawValue))
    var before = rlimit()
    getrlimit(resource, &before)
    var limit = rlimit(rlim_cur: value, rlim_max: before.rlim_max)
    setrlimit(resource, &limit)
    defer { setrlimit(resource, &before) }
    return try body()
}

/// Memory of this process that is in use, in bytes.
func residentSize() -> Int {
    let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
}

/// The processor time of this thread that `body` takes, in seconds: whatever else the machine does.
func threadTime(_ body: () throws -> Void) rethrows -> Double {
    var (begin, end) = (timespec(), timespec())
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin)
    try body()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end)
    return Double(end.tv_sec - begin.tv_sec) + Double(end.tv_nsec - begin.tv_nsec) / 1e9
}

/// As control lines have it.
func sha256(of data: some Sequence<UInt8>) -> String {
    var hash = SHA256()
    hash.update(data)
    return hash.digest.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}
