import Glibc

/// The output of a command: JSON lines, plain lines, or lines and a live view on a terminal.
final class Output {
    enum Mode { case json, plain, live }

    let mode: Mode
    /// Called when standard output has no reader any more.
    var onClosed: (() -> Void)?

    private var view: LiveView
    private let errorColour: Bool
    private var isClosed = false
    private var latestBlock: [Line] = []

    init(mode: Mode, colour: Bool) {
        self.mode = mode
        view = LiveView(colour: colour)
        errorColour = colour && isatty(STDERR_FILENO) == 1
    }

    convenience init(isJSON: Bool) {
        self.init(mode: isJSON ? .json : Terminal.isCapable ? .live : .plain, colour: !isJSON && Terminal.wantsColour)
    }

    /// For programs: one line of JSON. Nothing in the other modes.
    func report(_ event: DemoEvent) {
        if mode == .json { write(event.json.description + "\n") }
    }

    /// For people: a permanent line.
    func say(_ line: Line) {
        switch mode {
        case .json: break
        case .plain: write(line.rendered(colour: view.colour) + "\n")
        case .live: write(view.insert([line], size: Terminal.size))
        }
    }

    /// For people at a terminal: the lines at its end, redrawn in place.
    func show(_ block: [Line]) {
        guard mode == .live else { return }
        if latestBlock.isEmpty, !block.isEmpty { Terminal.setEcho(false) }
        latestBlock = block
        write(view.draw(block, size: Terminal.size))
    }

    /// Reports an error and its remedy on standard error.
    func complain(_ sentence: String) {
        report(.error(sentence))
        if mode == .live { write(view.draw([], size: Terminal.size)) }
        let line = Line("bluez-demo: ", .red) + Line(sentence)
        Terminal.write(line.rendered(colour: errorColour) + "\n", to: STDERR_FILENO)
        if mode == .live { write(view.draw(latestBlock, size: Terminal.size)) }
    }

    /// The size of the terminal has changed, or the program continues after it was suspended.
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

    private func write(_ text: String) {
        guard !isClosed, !text.isEmpty, !Terminal.write(text, to: STDOUT_FILENO) else { return }
        isClosed = true
        onClosed?()
    }
}
