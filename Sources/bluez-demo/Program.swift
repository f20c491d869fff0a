import BluezKit
import Dispatch
import Glibc
import Synchronization

/// The process: its signals and its exit.
enum Program {
    static let version = bluezKitVersion

    /// The running command. Used only on the main queue.
    private nonisolated(unsafe) static var command: (any Command)?
    private nonisolated(unsafe) static var output: Output?
    private nonisolated(unsafe) static var sources: [any DispatchSourceSignal] = []
    /// Signals that end the program. The main queue waits while the output is not read.
    private static let signalQueue = DispatchQueue(label: "bluez-demo.signals")
    /// The command was told to end, and does so within ``ManagerCommand/linkEnd``.
    private static let isEnding = Atomic(false)
    /// Ctrl-Z was pressed, and the process has not stopped yet.
    private static let isToStop = Atomic(false)
    /// The handlers of `exit` run, which may take their time.
    private static let isExiting = Atomic(false)

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
            watch(number, on: signalQueue) {
                count += 1
                if count == 1 {
                    DispatchQueue.main.async {
                        Self.command?.stop(status)
                        isEnding.store(true, ordering: .relaxed)
                    }
                    force(status, after: 5, unlessEnding: true)
                    force(status, after: Int(ManagerCommand.linkEnd) + 1)
                } else {
                    DispatchQueue.main.async { quit(status) }
                    force(status, after: 1)
                }
            }
        }
        // Its default action, such as a core dump, is what is asked for.
        watch(SIGQUIT, on: signalQueue) {
            DispatchQueue.main.async {
                Self.output?.restoreTerminal()
                takeDefault(of: SIGQUIT)
            }
            signalQueue.asyncAfter(deadline: .now() + .seconds(1)) {
                Terminal.setEcho(true)
                takeDefault(of: SIGQUIT)
            }
        }
        watch(SIGWINCH, on: .main) { output.resized() }
        watch(SIGTSTP, on: signalQueue) {
            isToStop.store(true, ordering: .relaxed)
            DispatchQueue.main.async {
                guard isToStop.load(ordering: .relaxed) else { return }
                Self.output?.restoreTerminal()
                guard isToStop.exchange(false, ordering: .relaxed) else { return }
                takeDefault(of: SIGTSTP)
                Self.output?.redraw()  // also where it has not stopped, because no shell could continue it
            }
            // The shell waits until all of the job has stopped, and the reader of the output may have already.
            signalQueue.asyncAfter(deadline: .now() + .seconds(1)) {
                guard isToStop.exchange(false, ordering: .relaxed) else { return }
                Terminal.setEcho(true)
                takeDefault(of: SIGTSTP)
            }
        }
        watch(SIGCONT, on: .main) { output.redraw() }
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
        guard let output, let problem = output.problem else { end(status) }
        output.complain(problem)
        end(status == .success ? .failure : status)
    }

    private static func end(_ status: ExitStatus) -> Never {
        isExiting.store(true, ordering: .relaxed)
        exit(status.rawValue)
    }

    /// Ends the process after so many seconds if the main queue has not: it may wait for the reader of the output.
    /// - Parameter unlessEnding: Only if it has not even told the command to end.
    private static func force(_ status: ExitStatus, after seconds: Int, unlessEnding: Bool = false) {
        signalQueue.asyncAfter(deadline: .now() + .seconds(seconds)) {
            guard !isExiting.load(ordering: .relaxed) else { return }
            if unlessEnding, isEnding.load(ordering: .relaxed) { return }
            Terminal.setEcho(true)
            _exit(status.rawValue)
        }
    }

    /// Does what a signal does to a process that does not handle it. If that is to stop, it returns afterwards.
    private static func takeDefault(of number: Int32) {
        var handler = sigaction()
        sigaction(number, nil, &handler)
        signal(number, SIG_DFL)
        // Dispatch blocks what it handles.
        var own = sigset_t()
        sigemptyset(&own)
        sigaddset(&own, number)
        var blocked = sigset_t()
        pthread_sigmask(SIG_UNBLOCK, &own, &blocked)
        raise(number)
        pthread_sigmask(SIG_SETMASK, &blocked, nil)
        sigaction(number, &handler, nil)
    }

    /// The reader of the output is gone.
    static func readerIsGone() { output?.close(because: EPIPE) }

    private static func watch(_ number: Int32, on queue: DispatchQueue, _ body: @escaping () -> Void) {
        // One that is ignored already stays ignored: `nohup` starts programs with SIGHUP ignored.
        var before = sigaction()
        sigaction(number, nil, &before)
        let handler = before.__sigaction_handler.sa_handler
        guard unsafeBitCast(handler, to: Int.self) != unsafeBitCast(SIG_IGN, to: Int.self) else { return }
        // Not ignored in the meantime: on Linux Dispatch handles a signal as soon as the source is registered.
        let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
        source.setEventHandler(handler: body)
        source.activate()
        sources.append(source)
    }
}
