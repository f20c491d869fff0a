import Foundation

/// What this process has used up to now.
struct Measurement {
    let timeNs: Int
    /// User and system.
    let cpuUs: Int
    /// 0 unless Benchmarks/allocations.c is preloaded.
    let allocations: Int

    private typealias Counter = @Sendable @convention(c) () -> CLongLong
    // The symbol is a function of this type (allocations.c).
    private static let counter = dlsym(nil, "allocations_so_far").map { unsafeBitCast($0, to: Counter.self) }

    init() {
        timeNs = Self.nowNs
        var usage = rusage()
        getrusage(RUSAGE_SELF.rawValue, &usage)
        cpuUs =
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000
            + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec
        allocations = Self.counter.map { Int($0()) } ?? 0
    }

    static var nowNs: Int {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        return now.tv_sec * 1_000_000_000 + now.tv_nsec
    }

    static var rssKiB: Int {
        let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
        return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 4
    }
}

func report(_ fields: KeyValuePairs<String, any CustomStringConvertible>, latenciesNs: [Int] = []) -> Never {
    let sorted = latenciesNs.sorted()
    let percentiles = (sorted.isEmpty ? [] : [50, 99]).map {
        "\"p\($0)_us\": \(Double(sorted[sorted.count * $0 / 100]) / 1000)"
    }
    print("{" + (fields.map { "\"\($0.key)\": \($0.value)" } + percentiles).joined(separator: ", ") + "}")
    exit(0)
}

/// - before: when the work began; first: when its first event came.
func report(
    events: Int, powered: Measurement, before: Measurement, first: Measurement, last: Measurement = Measurement(),
    latenciesNs: [Int] = []
) -> Never {
    report(
        [
            "events": events, "cpu_us": last.cpuUs - before.cpuUs, "allocations": last.allocations - before.allocations,
            "powered_ns": powered.timeNs, "first_ns": first.timeNs,
            "seconds": Double(last.timeNs - first.timeNs) / 1e9, "rss_kib": Measurement.rssKiB,
        ], latenciesNs: latenciesNs)
}

func fail(_ what: String) -> Never {
    FileHandle.standardError.write(Data("bluezkit-bench: \(what)\n".utf8))
    exit(1)
}
