/// An option of the command line, with its help.
struct OptionSpec: Sendable {
    /// Including its dashes: `--count`.
    let name: String
    /// The name of its value in the help; nil: the option has no value.
    var value: String?
    /// Used if the value is omitted; nil: it is required.
    var defaultValue: String?
    let help: String
    var repeats = false
}

/// A command: what it accepts, and its help.
struct CommandSpec: Sendable {
    /// One word or two: `card share`.
    let name: String
    let summary: String
    /// The operand after the options; nil: none.
    var operand: String?
    let options: [OptionSpec]
    /// Notes at the end of the help.
    var notes = ""

    func option(_ name: String) -> OptionSpec? { options.first { $0.name == name } }
}

extension CommandSpec {
    static let json = OptionSpec(name: "--json", help: "print one JSON object per line, for programs")
    static let simulated = OptionSpec(
        name: "--simulated", help: "use simulated devices: no adapter and no bluetoothd needed")
    static let adapter = OptionSpec(
        name: "--adapter", value: "ADAPTER",
        help: "use this adapter, by name (hci1) or address, instead of the first one that is on")
    static let help = OptionSpec(name: "--help", help: "show this help")
    static let version = OptionSpec(name: "--version", help: "show the version")
    static let common = [json, simulated, adapter, help]

    static let scan = CommandSpec(
        name: "scan", summary: "show the devices in range and their signal strength",
        options: [
            OptionSpec(name: "--duration", value: "SECONDS", help: "end after this long (default: until Ctrl-C)"),
            OptionSpec(
                name: "--service", value: "UUID",
                help: "show only devices that advertise this service; may be repeated",
                repeats: true),
        ] + common,
        notes: """
            On a terminal: a table, strongest signal on top. Elsewhere: one line for each device, its fields
            (identifier, RSSI in dBm, name, services) separated by tabs.
            """)

    static let heartRate = CommandSpec(
        name: "heart-rate", summary: "find a heart-rate sensor and show what it measures",
        options: [
            OptionSpec(name: "--count", value: "N", help: "end after N measurements (default: until Ctrl-C)"),
            OptionSpec(
                name: "--device", value: "DEVICE",
                help: "use this sensor, by its identifier or Bluetooth address, instead of the first one found"),
            OptionSpec(
                name: "--timeout", value: "SECONDS", help: "give up if there is no measurement for this long"),
            OptionSpec(
                name: "--restore", value: "IDENTIFIER", defaultValue: "heart-rate",
                help: "continue where a killed process with this restore identifier was"),
            keeper,
            OptionSpec(
                name: "--keeper-unit", value: "NAME",
                help: "likewise, as this unit of the user's systemd, such as heart-rate.service"),
            OptionSpec(
                name: "--log", value: "FILE",
                help: "append what --json prints to FILE, also when a keeper has started this program"),
        ] + common,
        notes: """
            When the link is lost the sensor is waited for, and its measurements go on. With --restore also after a
            crash, SIGTERM, kill -9 or a reboot, as soon as it is started again; Ctrl-C ends it for good. With --keeper
            it is started again at once, and misses nothing; it has no terminal then, so combine that with --log.
            `bluez-demo state` shows its process, and `kill -INT` ends it for good.
            """)

    static let keeper = OptionSpec(
        name: "--keeper", help: "let bluezkit-keeper continue when this program is killed, and start it again")

    static let state = CommandSpec(
        name: "state", summary: "show what is preserved for the next start, and what a keeper does, or end it",
        options: [
            OptionSpec(
                name: "--discard", value: "IDENTIFIER",
                help: "delete the state of this restore identifier, and end what a keeper does for it"),
            OptionSpec(
                name: "--directory", value: "PATH", help: "show the state of another program in this directory"),
            json, help,
        ])

    static let inspect = CommandSpec(
        name: "inspect", summary: "show the services and values of a device", operand: "DEVICE",
        options: [
            OptionSpec(
                name: "--timeout", value: "SECONDS", help: "give up if nothing happens for this long (default: 30)")
        ] + common,
        notes:
            "DEVICE is an identifier, as `bluez-demo scan` shows it, or a Bluetooth address. Reads every value that can be read."
    )

    static let values = OptionSpec(name: "--values", help: "read every value that can be read")
    static let anonymize = OptionSpec(
        name: "--anonymize", help: "replace the address, and what else identifies the device")

    static let record = CommandSpec(
        name: "record", summary: "record what a device does, for tests without it", operand: "[DEVICE]",
        options: [
            OptionSpec(name: "--output", value: "FILE", help: "write the recording to FILE, replacing it; also -o"),
            OptionSpec(
                name: "--seconds", value: "SECONDS", help: "how long notifications are recorded (default: 10)"),
            values, anonymize,
            OptionSpec(
                name: "--from", value: "FILE",
                help: "take it from a btsnoop capture, or from a file of BlueZ's cache, instead of a device in range; "
                    + "may be repeated", repeats: true),
            OptionSpec(
                name: "--timeout", value: "SECONDS", help: "give up if nothing happens for this long (default: 30)"),
        ] + common,
        notes: """
            DEVICE is an identifier, as `bluez-demo scan` shows it, or a Bluetooth address. Its advertisements are
            recorded for 5 s, or --seconds if that is less, then it is connected to. Captures are Android's
            btsnoop_hci.log and what `btmon -w` writes; if there are several devices in one they are listed.
            `bluez-demo simulate FILE` replays the recording.
            """)

    static let doctor = CommandSpec(
        name: "doctor", summary: "check whether Bluetooth works, and suggest remedies",
        options: [json, adapter, help],
        notes: "Exit status 0: usable. 3: not usable; each problem comes with its remedy.")

    static let simulate = CommandSpec(
        name: "simulate", summary: "provide simulated devices on a private bus, for this and other programs",
        operand: "[SCENARIO [N] | FILE...]",
        options: [
            OptionSpec(name: "--list", help: "list the scenarios"),
            OptionSpec(name: "--pace", value: "N", help: "replay recordings N times as fast"),
            OptionSpec(name: "--step", help: "send the next recorded notification each time that Enter is pressed"),
            json, help,
        ],
        notes: """
            Runs until Ctrl-C. Any BlueZ client that is given the address of the bus sees the devices. FILE is a recording
            of `bluez-demo record`; its name has a full stop or a slash.
            """)

    static let virtualHeartRate = CommandSpec(
        name: "peripheral heart-rate", summary: "act as a heart-rate sensor that phones and computers can find",
        options: [
            OptionSpec(name: "--name", value: "NAME", help: "its name (default: BluezKit Heart)"),
            OptionSpec(name: "--rate", value: "BPM", help: "approximate beats per minute (30 to 220; default: 72)"),
            OptionSpec(name: "--duration", value: "SECONDS", help: "end after this long (default: until Ctrl-C)"),
        ] + common,
        notes: "Heart rate with RR intervals and energy, battery, and device information. One measurement a second.")

    static let cardShare = CommandSpec(
        name: "card share", summary: "send a business card to machines nearby", operand: "FILE",
        options: [
            OptionSpec(
                name: "--count", value: "N", help: "end when N have received or refused it (default: until Ctrl-C)")
        ] + common,
        notes: """
            FILE is a vCard (.vcf), or anything else up to 1,000,000 bytes: it arrives byte for byte. Everybody who is
            near may receive it, over a link that is not encrypted. Receive it with `bluez-demo card receive`.
            """)

    static let cardReceive = CommandSpec(
        name: "card receive", summary: "receive the business card of a machine nearby",
        options: [
            OptionSpec(
                name: "--output", value: "FILE", help: "write the card to FILE, replacing it (default: show it)"),
            OptionSpec(
                name: "--min-rssi", value: "DBM",
                help:
                    "the minimum signal strength (-127 to 20; default: \(CardReceiveOptions.nearRSSI), an arm's length)"
            ),
            OptionSpec(
                name: "--max-size", value: "BYTES",
                help: "the largest card to accept (default: \(Card.sizeLimit))"),
            transferTimeout,
        ] + common,
        notes: "Ends when it has received a card.")

    private static let via = OptionSpec(
        name: "--via", value: "WAY",
        help: "write, write-without-response (default), notify or l2cap; the same at both ends")
    private static let transferTimeout = OptionSpec(
        name: "--timeout", value: "SECONDS", help: "give up if nothing moves for this long")
    private static func transferRestore(_ identifier: String) -> OptionSpec {
        OptionSpec(
            name: "--restore", value: "IDENTIFIER", defaultValue: identifier,
            help: "continue where a killed process with this restore identifier was")
    }

    static let transferSend = CommandSpec(
        name: "transfer send", summary: "send a file to another machine", operand: "FILE",
        options: [via, transferTimeout, transferRestore("transfer-send"), json, adapter, help],
        notes: """
            Receive it with `bluez-demo transfer receive FILE` on the other machine. After a lost link or a kill it
            continues where it was, when the same command is started again. The link is not encrypted. Without adapters: run
            both ends on the bus of `bluez-demo simulate two-adapters`, with --adapter hci0 and --adapter hci1.
            """)

    static let transferReceive = CommandSpec(
        name: "transfer receive", summary: "receive a file from another machine", operand: "FILE",
        options: [
            via,
            OptionSpec(
                name: "--max-size", value: "BYTES",
                help: "the largest file to accept (default: \(TransferOptions.usualLimit))"),
            transferTimeout, transferRestore("transfer-receive"), json, adapter, help,
        ],
        notes: """
            FILE is replaced when everything has arrived and its SHA-256 is right. Until then it is FILE.part, from
            which the same file is continued, also after a kill. Ends when it has received a file. Without adapters: as
            `bluez-demo transfer send --help` says.
            """)

    static let notifications = CommandSpec(
        name: "notifications", summary: "show the notifications of an iPhone",
        options: [
            OptionSpec(name: "--app", value: "IDENTIFIER", help: "only those of this app, such as com.apple.MobileSMS"),
            OptionSpec(
                name: "--perform", value: "ACTION",
                help: "perform an action of each new one that has it: positive (answer) or negative (dismiss)"),
            OptionSpec(name: "--count", value: "N", help: "end after N notifications (default: until Ctrl-C)"),
            OptionSpec(name: "--timeout", value: "SECONDS", help: "give up if there is no notification for this long"),
        ] + common,
        notes: """
            On the iPhone: Settings > Bluetooth, choose BluezKit, pair, and allow it to show notifications. After that the
            phone connects on its own when it is near. Any phone in range can pair while this runs, without confirmation on
            this machine. If nothing comes: `bluez-demo doctor`.
            """)

    static let ladder = CommandSpec(
        name: "ladder", summary: "measure how fast data moves, from the slowest way to the fastest",
        options: [
            OptionSpec(name: "--peer", help: "be the peer that another machine's `bluez-demo ladder` measures with"),
            OptionSpec(name: "--seconds", value: "SECONDS", help: "how long each way is measured (default: 5)"),
            OptionSpec(name: "--timeout", value: "SECONDS", help: "give up if there is no peer for this long"),
        ] + common,
        notes: """
            With --simulated: the ladder that Apple showed in 2017, calculated from the parameters of a link, next to
            the published figures. Docs/THROUGHPUT.md has the arithmetic.
            """)

    static let trace = CommandSpec(
        name: "trace", summary: "show what a program has asked of the library and heard from it, as a timeline",
        operand: "FILE",
        options: [
            OptionSpec(
                name: "--device", value: "DEVICE",
                help: "only what is about this one, by its identifier or Bluetooth address"),
            OptionSpec(name: "--manager", value: "N", help: "only this manager, by its number in the timeline"),
            OptionSpec(name: "--from", value: "SECONDS", help: "only from this time of the timeline on"),
            OptionSpec(name: "--to", value: "SECONDS", help: "only up to this time of the timeline"),
            json, help,
        ],
        notes: """
            BLUEZKIT_TRACE=FILE in the environment makes any program that uses BluezKit write FILE, which contains values
            and addresses: with BLUEZKIT_TRACE_VALUES=0, no values. An arrow to the right is a call of the app, one to the
            left a callback. The last lines say why links ended, which answers took longest, and which are missing.
            """)

    static let all = [
        scan, heartRate, inspect, record, state, virtualHeartRate, cardShare, cardReceive, transferSend,
        transferReceive, notifications, ladder, trace, doctor, simulate,
    ]
}
