import Foundation

// A gateway's week in compressed time. This process is the world: BlueZ, its bus and what is on the air. The apps are
// processes of their own, so that what they take can be seen from outside.
//
//     bluezkit-soak [--days N] [--seed N]        N may be a fraction; default: 7 and a random seed
//     bluezkit-soak app ADDRESS NAME...          one of the apps; it holds the peripherals of these names

/// A line that is printed immediately, also to a pipe.
func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

let words = CommandLine.arguments
if words.count > 2, words[1] == "app" {
    SoakApp(words[2], names: Set(words.dropFirst(3))).run()
}

func option(_ name: String) -> String? {
    words.firstIndex(of: name).flatMap { $0 + 1 < words.count ? words[$0 + 1] : nil }
}
let days = option("--days").flatMap(Double.init) ?? 7
let seed = option("--seed").flatMap { UInt64($0) } ?? .random(in: 0..<1_000_000)

Task {
    do {
        try await SoakWorld(seed: seed).live(days: days)
        exit(0)
    } catch {
        say("soak: FAILED (seed \(seed)): \(error)")
        exit(1)
    }
}
dispatchMain()
