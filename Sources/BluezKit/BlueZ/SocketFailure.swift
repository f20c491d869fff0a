import BluezDBus
import Foundation

/// Why a channel could not be opened or published: what the kernel answered to a call about its socket.
struct SocketFailure: Error, Equatable {
    enum Step: String, CaseIterable, Sendable { case make = "make", connect = "connect", listen = "listen" }

    let step: Step
    /// An `errno`.
    let code: Int32

    init(_ step: Step, _ code: Int32) { (self.step, self.code) = (step, code) }

    /// Of a simulator, whose errors are named after the `errno` that the kernel would give; or of the bus.
    init(_ step: Step, _ error: BusError) {
        let name = error.name.split(separator: ".").last.map(String.init) ?? ""
        let codes = Self.rows.flatMap(\.codes)
        self.init(step, codes.first { Self.name(of: $0) == name } ?? ENOTCONN)
    }

    /// The pairing that the channel needs did not come about.
    static let unpaired = SocketFailure(.connect, EACCES)

    struct Row: Sendable {
        let steps: [Step]
        let codes: [Int32]
        let result: CBError.Code
        let meaning: String
    }

    /// The first matching row applies. `Docs/ERRORS.md` shows them.
    static let rows = [
        Row(
            steps: [.make], codes: [EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT], result: .operationNotSupported,
            meaning:
                "the kernel has no Bluetooth sockets here: load its module (`sudo modprobe bluetooth`); a container "
                + "needs the network of the host (`--network host`)"),
        Row(
            steps: [.make], codes: [EACCES, EPERM], result: .operationNotSupported,
            meaning: "a security policy forbids this process to open Bluetooth sockets: allow the address family "
                + "AF_BLUETOOTH in its seccomp profile (systemd: `RestrictAddressFamilies`), SELinux or AppArmor policy"
        ),
        Row(
            steps: [.listen], codes: [EINVAL, EADDRINUSE], result: .outOfSpace,
            meaning: "no PSM is free: programs on this computer listen at all 128 of 0x0080 to 0x00FF"),
        Row(
            steps: [.connect], codes: [EACCES, EBADE, EPERM], result: .encryptionTimedOut,
            meaning: "the peer demands an encrypted link, and pairing has failed or was refused"),
        Row(
            steps: [.connect], codes: [ECONNREFUSED], result: .connectionFailed,
            meaning: "the peer has no channel with this PSM, or refuses it; a PSM may change with each connection"),
        Row(
            steps: [.connect], codes: [EINVAL], result: .invalidParameters,
            meaning: "LE channels have PSMs from 0x0001 to 0x00FF"),
        Row(
            steps: [.connect], codes: [ETIMEDOUT], result: .connectionTimeout,
            meaning: "the peer did not answer within 40 s"),
        Row(
            steps: [.connect, .listen],
            codes: [
                ENOTCONN, ECONNRESET, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENODEV, EADDRNOTAVAIL, EPIPE,
            ], result: .notConnected, meaning: "the link has ended, or Bluetooth is off"),
        Row(
            steps: Step.allCases, codes: [EMFILE, ENFILE, ENOMEM, ENOBUFS], result: .outOfSpace,
            meaning: "the process has no descriptor left (`ulimit -n`), or the kernel has no memory"),
    ]

    /// Such as `ECONNREFUSED`. glibc has such a function only since 2.32.
    static func name(of code: Int32) -> String { names[code] ?? "errno \(code)" }

    private static let names: [Int32: String] = [
        EACCES: "EACCES", EADDRINUSE: "EADDRINUSE", EADDRNOTAVAIL: "EADDRNOTAVAIL", EAFNOSUPPORT: "EAFNOSUPPORT",
        EBADE: "EBADE", ECONNABORTED: "ECONNABORTED", ECONNREFUSED: "ECONNREFUSED", ECONNRESET: "ECONNRESET",
        EHOSTDOWN: "EHOSTDOWN", EHOSTUNREACH: "EHOSTUNREACH", EINVAL: "EINVAL", EMFILE: "EMFILE", ENETDOWN: "ENETDOWN",
        ENFILE: "ENFILE", ENOBUFS: "ENOBUFS", ENODEV: "ENODEV", ENOMEM: "ENOMEM", ENOTCONN: "ENOTCONN", EPERM: "EPERM",
        EPIPE: "EPIPE", EPROTONOSUPPORT: "EPROTONOSUPPORT", ESOCKTNOSUPPORT: "ESOCKTNOSUPPORT", ETIMEDOUT: "ETIMEDOUT",
    ]

    /// The app's error, with the kernel's as the underlying one.
    var error: CBError {
        let row = Self.rows.first { $0.steps.contains(step) && $0.codes.contains(code) }
        let reason = "\(String(cString: strerror(code))) (\(Self.name(of: code)))"
        var info: [String: Any] = [
            NSUnderlyingErrorKey: NSError(domain: NSPOSIXErrorDomain, code: Int(code)),
            NSLocalizedFailureReasonErrorKey: reason,
        ]
        if let row { info[NSLocalizedRecoverySuggestionErrorKey] = row.meaning }
        return CBError(row?.result ?? .unknown, userInfo: info)
    }
}
