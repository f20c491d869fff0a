import BluezKit
import Dispatch
import Glibc

/// The process: its signals and its exit.
enum Program {
    static let version = bluezKitVersion

    /// The running command. Used only on the main queue.
    private nonisolated(unsafe) static var command: (any Command)?
    private nonisolated(unsafe) static var output: Output?
    private nonisolated(unsafe) static var sources: [any DispatchSourceSignal] = []

    /// Runs a command, which ends the process.
    /// - Parameter preserves: It is to preserve its state.
    static func run(_ command: any Command, output: Output, preserves: Bool) -> Never {
        (self.command, self.output) = (command, output)
        output.onClosed = { command.stop(.success) }
        output.watchReader()
        // The command reports what matters; the library's own log is shown only if requested, or if it says that what
        // the user has asked for is not done.
        BluezKitLog.handler = { level, text in
            let isRefusal = level == .warning && (text.contains("cannot be ") || text.contains("keeper"))
            let isOfTrace = text.hasPrefix("BLUEZKIT_TRACE")
            if isOfTrace || preserves && (isRefusal || text.contains("Preservation is disabled")) {
                DispatchQueue.main.async { Self.output?.complain(text) }
            } else if level == .misuse || BluezKitLog.level == .debug {
                BluezKitLog.writeToStandardError(level, text)
            }
        }
        for (number, status) in [(SIGINT, ExitStatus.interrupted), (SIGTERM, .terminated), (SIGHUP, .hungUp)] {
            var count = 0
            watch(number) {
                count += 1
                if count == 1 { command.stop(status) } else { quit(status) }
            }
        }
        watch(SIGWINCH) { output.resized() }
        watch(SIGTSTP) {
            output.restoreTerminal()
            kill(getpid(), SIGSTOP)
        }
        watch(SIGCONT) { output.redraw() }
        DispatchQueue.main.async { Self.command?.start() }
        dispatchMain()
    }

    /// Writes a text, and ends the process.
    static func print(_ text: String) -> Never {
        let output = Output(mode: .plain, colour: false)
        output.say(Line(text))
        self.output = output
        quit(.success)
    }

    /// Restores the terminal and ends the process.
    static func quit(_ status: ExitStatus) -> Never {
        output?.restoreTerminal()
        guard let output, let problem = output.problem else { exit(status.rawValue) }
        output.complain(problem)
        exit(status == .success ? ExitStatus.failure.rawValue : status.rawValue)
    }

    /// The reader of the output is gone.
    static func readerIsGone() { output?.close(because: EPIPE) }

    private static func watch(_ number: Int32, _ body: @escaping () -> Void) {
        // One that is ignored already stays ignored: `nohup` starts programs with SIGHUP ignored.
        var before = sigaction()
        sigaction(number, nil, &before)
        let handler = before.__sigaction_handler.sa_handler
        guard unsafeBitCast(handler, to: Int.self) != unsafeBitCast(SIG_IGN, to: Int.self) else { return }
        // Not ignored in the meantime: on Linux Dispatch handles a signal as soon as the source is registered.
        let source = DispatchSource.makeSignalSource(signal: number, queue: .main)
        source.setEventHandler(handler: body)
        source.activate()
        sources.append(source)
    }
}
