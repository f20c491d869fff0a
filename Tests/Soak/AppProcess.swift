import Foundation

/// One app, seen from outside.
final class AppProcess {
    struct Broken: Error, CustomStringConvertible { let description: String }

    /// The app's own report.
    struct Status {
        var discoveries = 0, values = 0, losses = 0
        /// Peripherals whose values come.
        var notifying = 0
        var probe = ""
        var events: Int { discoveries + values + losses }
    }

    /// The kernel's report.
    struct Footprint: CustomStringConvertible {
        var cpuSeconds = 0.0
        var residentKiB = 0
        var descriptors = 0
        var threads = 0
        var description: String { "\(residentKiB) KiB, \(descriptors) descriptors, \(threads) threads" }
    }

    let process = Process()
    private let input = Pipe()
    private let output = Pipe()
    private var unread = Data()

    init(address: String, names: [String]) throws {
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["app", address] + names
        process.standardInput = input
        process.standardOutput = output
        try process.run()
    }

    deinit { process.terminate() }

    /// - Parameter goal: What it is to have before it answers. After 30 s it answers in any case.
    func status(_ goal: SoakGoal = SoakGoal()) throws -> Status {
        guard process.isRunning else { throw Broken(description: "an app has ended: \(process.terminationStatus)") }
        input.fileHandleForWriting.write(Data("\(goal)\n".utf8))
        while !unread.contains(0x0A) {
            let data = output.fileHandleForReading.availableData
            if data.isEmpty { throw Broken(description: "an app has ended") }
            unread += data
        }
        let line = unread.prefix { $0 != 0x0A }
        unread = Data(unread.dropFirst(line.count + 1))
        let words = String(decoding: line, as: UTF8.self).split(separator: " ", maxSplits: 4).map(String.init)
        let numbers = words.compactMap { Int($0) }
        guard words.count == 5, numbers.count >= 4 else { throw Broken(description: "an app said \(words)") }
        return Status(
            discoveries: numbers[0], values: numbers[1], losses: numbers[2], notifying: numbers[3], probe: words[4])
    }

    func footprint() -> Footprint {
        let directory = "/proc/\(process.processIdentifier)"
        func words(_ file: String) -> [Substring] {
            let text = (try? String(contentsOfFile: "\(directory)/\(file)", encoding: .utf8)) ?? ""
            // The name of the program, in parentheses, may have spaces.
            return (text.split(separator: ")").last ?? "").split(separator: " ")
        }
        func count(_ folder: String) -> Int {
            (try? FileManager.default.contentsOfDirectory(atPath: "\(directory)/\(folder)"))?.count ?? 0
        }
        let statistics = words("stat")
        let ticks = [11, 12].map { statistics.count > $0 ? Double(statistics[$0]) ?? 0 : 0 }.reduce(0, +)
        let pages = words("statm").dropFirst().first.flatMap { Int($0) } ?? 0
        return Footprint(
            cpuSeconds: ticks / Double(sysconf(Int32(_SC_CLK_TCK))), residentKiB: pages * Int(getpagesize()) / 1024,
            descriptors: count("fd"), threads: count("task"))
    }
}
