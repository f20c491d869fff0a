import BluezKit
import Foundation

// Built with coverage and linked with libFuzzer (scripts/fuzz), which invents inputs, keeps those that reach new code,
// and writes down the one that led to a crash, a sanitizer's report, a hang or too much memory.

@_silgen_name("LLVMFuzzerRunDriver")
func runDriver(
    _ count: UnsafeMutablePointer<CInt>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
    _ target: @convention(c) (UnsafePointer<UInt8>?, Int) -> CInt
) -> CInt

typealias Target = @Sendable (UnsafeBufferPointer<UInt8>) -> Void

let targets: KeyValuePairs<String, Target> = [
    "message": Decoders.message, "advertisement": Decoders.advertisement, "attributes": Decoders.attributes,
    "border": Decoders.border, "keeper": Decoders.keeper, "trace": Decoders.trace,
    "profiles": Decoders.profiles, "state": Decoders.state, "text": Decoders.text, "stream": Decoders.stream,
    "recording": Recordings.file, "capture": Recordings.capture, "cache": Recordings.cache,
    "bus": FuzzedWorld.play,
]

/// A C function captures nothing.
enum Chosen {
    nonisolated(unsafe) static var target: Target = { _ in }  // holds: written once, before the first input
}

let name = CommandLine.arguments.dropFirst().first ?? "list"
if name == "list" {
    for (name, _) in targets { print(name) }
    exit(0)
}
guard let target = targets.first(where: { $0.key == name })?.value else {
    FileHandle.standardError.write(Data("no target '\(name)'; bluezkit-fuzz list names them\n".utf8))
    exit(64)
}
Chosen.target = target
// Lines would be most of the work. Making their texts is part of what is fuzzed.
BluezKitLog.handler = { _, _ in }
atexit { FuzzedWorld.printCounts() }
// libFuzzer takes its arguments from the second on.
var count = CommandLine.argc - 1
var arguments = CommandLine.unsafeArgv + 1
exit(
    runDriver(&count, &arguments) { bytes, count in
        Chosen.target(UnsafeBufferPointer(start: bytes, count: count))
        return 0
    })
