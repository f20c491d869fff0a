import BluezDBus
import Glibc
import Synchronization

/// The terminal to which standard output is connected, if any.
enum Terminal {
    struct Size: Equatable {
        var columns = 80
        var rows = 24
    }

    /// Opens `/dev/null` in place of standard input, output and error that are closed: the next file or socket that is
    /// opened would be used in their place.
    /// - Returns: Whether standard output was open.
    static func openMissing() -> Bool {
        let isOutputOpen = fcntl(STDOUT_FILENO, F_GETFD) >= 0
        for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(descriptor, F_GETFD) < 0 {
            // The lowest number that is free.
            _ = open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY)
        }
        return isOutputOpen
    }

    /// Whether the cursor can be moved.
    static var isCapable: Bool { isatty(STDOUT_FILENO) == 1 && environment("TERM").map { $0 != "dumb" } ?? false }

    /// NO_COLOR: https://no-color.org
    static var wantsColour: Bool { isCapable && environment("NO_COLOR") == nil }

    static var size: Size {
        var window = winsize()
        guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &window) == 0, window.ws_col > 0, window.ws_row > 0 else {
            return Size()
        }
        return Size(columns: Int(window.ws_col), rows: Int(window.ws_row))
    }

    /// Whether this program has switched the echo off.
    private static let isEchoOff = Atomic(false)

    /// Sets whether the terminal echoes typed keys, which would disturb the live view. On only if this had set it off:
    /// a pager, which shares the terminal, has its own setting.
    static func setEcho(_ isOn: Bool) {
        if isOn, !isEchoOff.load(ordering: .relaxed) { return }
        // A background job that changes the terminal is stopped.
        guard tcgetpgrp(STDIN_FILENO) == getpgrp() else { return }
        var attributes = termios()
        guard tcgetattr(STDIN_FILENO, &attributes) == 0 else { return }
        if isOn { attributes.c_lflag |= tcflag_t(ECHO) } else { attributes.c_lflag &= ~tcflag_t(ECHO) }
        tcsetattr(STDIN_FILENO, TCSANOW, &attributes)
        isEchoOff.store(!isOn, ordering: .relaxed)
    }

    /// Writes everything.
    /// - Returns: 0, or the error number: EPIPE if there is no reader any more.
    @discardableResult
    static func write(_ text: String, to descriptor: Int32) -> Int32 {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count > 0 {
                bytes.removeFirst(count)
            } else if errno == EAGAIN {
                var poll = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                Glibc.poll(&poll, 1, -1)
            } else if errno != EINTR {
                return errno
            }
        }
        return 0
    }
}
