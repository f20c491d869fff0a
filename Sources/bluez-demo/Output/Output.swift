import BluezDBus
import Dispatch
import Glibc

/// The output of a command: JSON lines, plain lines, or lines and a live view on a terminal.
final class Output {
    enum Mode { case json, plain, live }

    let mode: Mode
    /// Called on the main queue, later, when nothing can be written any more.
    var onClosed: (() -> Void)?
    /// Why nothing can be written any more. Nil: there is no reader, and the program has done what it was to do.
    private(set) var problem: String?

    private var view: LiveView
    private let errorColour: Bool
    private let isErrorTerminal = isatty(STDERR_FILENO) == 1
    private var isClosed = false
    /// The file that gets every event.
    private var log: Int32?
    private var latestBlock: [Line] = []
    /// How often the size of the terminal has changed a moment ago.
    private var resizes = 0

    init(mode: Mode, colour: Bool) {
        self.mode = mode
        view = LiveView(colour: colour)
        errorColour = colour && isErrorTerminal
    }

    convenience init(isJSON: Bool) {
        self.init(mode: isJSON ? .json : Terminal.isCapable ? .live : .plain, colour: !isJSON && Terminal.wantsColour)
    }

    /// From now on each event is appended to a file as well, in any mode.
    /// - Returns: The error number if it cannot be opened.
    func append(to path: String) -> Int32? {
        // Without waiting: a named pipe without a reader is an error at once, where no signal could end the wait.
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0o666)
        guard file >= 0 else { return errno }
        log = file
        return nil
    }

    /// For programs: one line of JSON. Nothing in the other modes.
    func report(_ event: DemoEvent) {
        guard mode == .json || log != nil else { return }
        let line = event.json.description + "\n"
        if let log, case let error = Terminal.write(line, to: log), error != 0 {
            self.log = nil
            close(because: error)
        }
        if mode == .json { write(line) }
    }

    /// For people: a permanent line. On a terminal it is broken between words where it has to be.
    /// - Parameter indent: Of the parts after the first; nil: that of the line.
    func say(_ line: Line, indent: Int? = nil) {
        switch mode {
        case .json: break
        case .plain: write(line.rendered(colour: view.colour) + "\n")
        case .live:
            let size = Terminal.size
            write(view.insert(line.wrapped(to: size.columns - 1, indent: indent ?? line.indent), size: size))
        }
    }

    /// For people at a terminal: the lines at its end, redrawn in place.
    func show(_ block: [Line]) {
        guard mode == .live else { return }
        if latestBlock.isEmpty, !block.isEmpty { Terminal.setEcho(false) }
        latestBlock = block
        if resizes == 0 || block.isEmpty { write(view.draw(block, size: Terminal.size)) }
    }

    /// Reports an error and its remedy on standard error.
    func complain(_ sentence: String) {
        report(.error(sentence))
        if mode == .live { write(view.draw([], size: Terminal.size)) }
        // It may contain an argument or the name of a file.
        let line = Line("bluez-demo: ", .red) + Line(sentence.harmless)
        for part in isErrorTerminal ? line.wrapped(to: Terminal.size.columns - 1, indent: 2) : [line] {
            Terminal.write(part.rendered(colour: errorColour) + "\n", to: STDERR_FILENO)
        }
        if mode == .live { write(view.draw(latestBlock, size: Terminal.size)) }
    }

    /// The size of the terminal has changed. Nothing is drawn until it stays the same for a moment: what is written for
    /// one size could arrive at another, and what was drawn before would not be where it is looked for.
    func resized() {
        resizes += 1
        DispatchQueue.main.later(.milliseconds(300)) { [self] in
            resizes -= 1
            if resizes == 0 { redraw() }
        }
    }

    /// The terminal has another size, or the program continues after it was suspended.
    func redraw() {
        guard mode == .live, !latestBlock.isEmpty else { return }
        Terminal.setEcho(false)
        write(view.draw(latestBlock, size: Terminal.size))
    }

    /// Restores the terminal. Its content stays.
    func restoreTerminal() {
        guard mode == .live, !latestBlock.isEmpty else { return }
        write(view.end())
        Terminal.setEcho(true)
    }

    /// Notices that the reader of a pipe or a socket is gone, also when there is nothing to write.
    func watchReader() {
        var status = stat()
        guard fstat(STDOUT_FILENO, &status) == 0, [S_IFIFO, S_IFSOCK].contains(status.st_mode & S_IFMT) else { return }
        // A thread that only waits: a dispatch source for writing would run whenever there is room.
        DispatchQueue(label: "bluez-demo.reader").async {
            var end = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
            while poll(&end, 1, -1) < 0, errno == EINTR {}
            guard end.revents & Int16(POLLERR | POLLHUP) != 0 else { return }
            DispatchQueue.main.async { Program.readerIsGone() }
        }
    }

    private func write(_ text: String) {
        guard !isClosed, !text.isEmpty else { return }
        let error = Terminal.write(text, to: STDOUT_FILENO)
        if error != 0 { close(because: error) }
    }

    /// Nothing is written any more.
    func close(because error: Int32) {
        guard !isClosed else { return }
        isClosed = true
        if error != EPIPE { problem = "the output cannot be written: " + String(cString: strerror(error)) }
        // Later, because a command writes in the middle of what it does.
        DispatchQueue.main.later { [self] in onClosed?() }
    }
}
