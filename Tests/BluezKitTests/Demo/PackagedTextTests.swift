import Foundation
import Testing

@testable import bluez_demo

/// What a package installs beside the program: made from the table of commands, and understood by who reads it.
@Suite struct PackagedTextTests {
    @Test("help for packages is asked for by name, and a shell that is not known is a mistake")
    func invocation() throws {
        #expect(try Invocation(["help", "--manual"]) == .manual)
        for shell in Completions.allCases {
            #expect(try Invocation(["help", "--completions", shell.rawValue]) == .completions(shell))
        }
        for wrong in [["help", "--completions"], ["help", "--completions", "tcsh"]] {
            #expect(throws: UsageError.self) { try Invocation(wrong) }
        }
    }

    @Test("the manual page has every command and every option, and no line that man would take for a request")
    func manual() throws {
        let page = ManualPage(version: "1.2.3").text
        for spec in CommandSpec.all {
            #expect(page.contains("bluez\\-demo " + spec.name.replacing("-", with: "\\-")))
            for option in spec.options { #expect(page.contains(option.name.replacing("-", with: "\\-"))) }
        }
        let requests: Set<String> = [".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".BR", ".br", ".\\\""]
        for line in page.split(separator: "\n") where line.hasPrefix(".") || line.hasPrefix("'") {
            #expect(requests.contains(String(line.prefix { $0 != " " })), "\(line)")
        }
    }

    @Test(
        "bash completes commands, the second words of those that have two, options, and nothing after a value's name",
        arguments: [
            ("sc", "scan"), ("heart-rate --dev", "--device"), ("card ", "share receive"), ("card r", "receive"),
            ("peripheral heart-rate --ra", "--rate"), ("--json st", "state"), ("--adapter hci1 sc", "scan"),
            ("scan --service ", ""), ("simulate two", "two-adapters"), ("transfer receive --max", "--max-size"),
            ("heart-rate --restore --js", "--json"), ("nonsense ", ""),
            ("--adapter = hci1 sc", "scan"), ("heart-rate --restore = a --co", "--count"),
        ])
    func bash(typed: String, expected: String) throws {
        let words = ["bluez-demo"] + typed.split(separator: " ", omittingEmptySubsequences: false).map(String.init)
        let quoted = words.map { "'\($0)'" }.joined(separator: " ")
        let script =
            Completions.bash.script + """

                COMP_WORDS=(\(quoted)); COMP_CWORD=\(words.count - 1)
                _bluez_demo
                echo "${COMPREPLY[*]}"
                """
        #expect(try Self.output(of: "bash", script) == expected)
    }

    @Test("zsh and fish get each command with its options")
    func others() {
        for script in [Completions.zsh.script, Completions.fish.script] {
            for spec in CommandSpec.all {
                #expect(spec.name.split(separator: " ").allSatisfy { script.contains($0) })
                for option in spec.options { #expect(script.contains(option.name.dropFirst(2)), "\(option.name)") }
            }
        }
    }

    private static func output(of shell: String, _ script: String) throws -> String {
        let process = Process()
        let pipe = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = [shell, "-c", script]
        process.standardOutput = pipe
        try process.run()
        let bytes = try pipe.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return String(decoding: bytes, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    }
}
