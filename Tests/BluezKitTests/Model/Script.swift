import BluezKitSimulator

/// What apps and the world do, step by step: made from a number, written as a line, shrunk when it fails.
struct Script: Equatable, CustomStringConvertible {
    /// A verb and its objects: `connect 0 2`, app 0 connects peripheral 2.
    struct Step: Equatable, CustomStringConvertible {
        let verb: Verb
        let numbers: [Int]

        init(_ verb: Verb, _ numbers: Int...) { (self.verb, self.numbers) = (verb, numbers) }

        init?(_ text: some StringProtocol) {
            let words = text.split(separator: " ")
            guard let verb = words.first.flatMap({ Verb(rawValue: String($0)) }) else { return nil }
            self.verb = verb
            numbers = words.dropFirst().compactMap { Int($0) }
            guard numbers.count == verb.arity, words.count == numbers.count + 1 else { return nil }
        }

        var description: String { ([verb.rawValue] + numbers.map(String.init)).joined(separator: " ") }
    }

    enum Verb: String, CaseIterable {
        // An app: with its number. Each has a manager and at most one object of each peripheral.
        case make, free, scan, scanAll, scanSensors, stop
        /// Resumes after a reset and after a crash: then another manager restores what it has preserved.
        case keep, crash
        /// The app's queue is busy until it is resumed; calls that it makes meanwhile come before everything that
        /// waits.
        case busy, on
        // An app and a peripheral.
        case get, drop, connect, autoconnect, connectLater, cancel
        case services, sensorService, characteristics, included, descriptors, rssi, connected, events
        // An app, a peripheral, and one of its attributes that are known.
        case read, write, command, subscribe, unsubscribe, readDescriptor, writeDescriptor
        /// Reads one of a link that has ended.
        case readStale
        /// An app, and its automatic actions from now on: the number of a ``Habit``.
        case habit
        // A peripheral: its number.
        case end, vanish, appear, silent, loud, notify, change, forget, flicker
        // Bluetooth.
        case off, power, kill, quit, start, unplug, plug
        /// bluetoothd does nothing for some milliseconds.
        case hang
        // Another program: a link to a peripheral, or its end; a scan, and its end.
        case guestConnect, guestEnd, guestScan, guestRest
        // A host, an app in the peripheral role: its number, which begins at `Script.apps`, and one of its services. It
        // is made, busy and freed as others are.
        case publish, withdraw, withdrawAll, advertise, hush, update
        // A central that connects and subscribes to everything, or disconnects: its number.
        case join, leave
        /// Some milliseconds, or until everything has come that is due.
        case pause, settle

        var arity: Int {
            switch self {
            case .off, .power, .kill, .quit, .start, .unplug, .plug, .settle, .guestScan, .guestRest: 0
            case .make, .keep, .crash, .free, .scan, .scanAll, .scanSensors, .stop, .busy, .on, .connected, .events,
                .end,
                .vanish,
                .appear, .silent, .loud, .notify, .change, .forget, .flicker, .pause, .hang, .guestConnect, .guestEnd,
                .withdrawAll, .advertise, .hush, .join, .leave:
                1
            case .get, .drop, .connect, .autoconnect, .connectLater, .cancel, .services, .sensorService, .included,
                .descriptors, .characteristics, .rssi, .readStale, .habit, .publish, .withdraw, .update:
                2
            case .read, .write, .command, .subscribe, .unsubscribe, .readDescriptor, .writeDescriptor: 3
            }
        }
    }

    /// What apps do in their callbacks.
    enum Habit: Int, CaseIterable {
        case none
        /// Connects again in `didDisconnectPeripheral`.
        case reconnects
        /// Discovers all, then subscribes and reads.
        case explores
        /// Cancels in `didConnect`.
        case cancels
        /// Cancels in `didConnect` and connects again.
        case restarts
        /// Releases the peripheral in `didDisconnectPeripheral`, or in `didConnect`.
        case dropsWhenLost, dropsWhenConnected
        /// Releases the manager in `didConnect`.
        case frees
        /// Connects whatever it discovers.
        case collects
    }

    static let apps = 3
    static let hosts = 2
    static let services = 3
    static let centrals = 2
    static let peripherals = 3

    var steps: [Step]

    init(_ steps: [Step]) { self.steps = steps }

    /// - Parameter line: `make 0; settle; get 0 0`
    init?(line: String) {
        let parts = line.split(separator: ";").map { $0.trimmingPrefix { $0 == " " } }
        steps = parts.compactMap { Step($0) }
        guard steps.count == parts.count else { return nil }
    }

    var description: String { steps.map(\.description).joined(separator: "; ") }
}

// MARK: Making

extension Script {
    /// The same for the same seed.
    init(seed: UInt64) {
        var author = Author(random: SeededGenerator(seed: seed))
        steps = author.write()
    }

    /// Writes phrases that apps and worlds are made of, and breaks into them.
    private struct Author {
        var random: SeededGenerator
        private var apps = 1
        private var peripherals = 1
        private var hosts = 0

        init(random: SeededGenerator) { self.random = random }

        mutating func write() -> [Step] {
            apps = pick([1, 1, 2, 2, 3])
            peripherals = pick([1, 1, 2, 3])
            hosts = pick([0, 0, 0, 1, 1, 2])
            let made = (0..<apps).map { Step(pick([Verb.make, .make, .keep]), $0) }
            var steps = made + (0..<hosts).map { Step(.make, Script.apps + $0) } + [Step(.settle)]
            for app in 0..<apps where chance(60) { steps.append(Step(.habit, app, pick(Habit.allCases).rawValue)) }
            for _ in 0..<pick(2...7) { steps += phrase() }
            return steps
        }

        private mutating func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }
        private mutating func pick(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &random) }
        private mutating func pick<T>(_ choices: [T]) -> T {
            choices[Int.random(in: 0..<choices.count, using: &random)]
        }

        private mutating func pause() -> [Step] {
            switch pick(0...9) {
            case 0...3: []
            case 4...6: [Step(.pause, pick([1, 3, 10, 30]))]
            case 7: [Step(.pause, pick([60, 120, 250]))]
            default: [Step(.settle)]
            }
        }

        private mutating func phrase() -> [Step] {
            let isHost = hosts > 0 && chance(50)
            let app = isHost ? Script.apps + pick(0...hosts - 1) : pick(0...apps - 1)
            var steps = isHost ? hostWords(app) : words(app, pick(0...peripherals - 1))
            // Something else comes in between.
            if chance(40) { steps.insert(contentsOf: interruption(), at: pick(0...steps.count)) }
            if chance(20) {
                let start = pick(0...steps.count)
                steps.insert(Step(.busy, app), at: start)
                steps.insert(contentsOf: pause() + [Step(.on, app)], at: pick(start + 1...steps.count))
            }
            return steps.flatMap { [$0] + pause() }
        }

        private mutating func words(_ app: Int, _ peripheral: Int) -> [Step] {
            let connect = pick([Verb.connect, .connect, .connect, .autoconnect, .connectLater])
            let link = [Step(.get, app, peripheral), Step(connect, app, peripheral)]
            let explore = [
                Step(.services, app, peripheral), Step(.settle), Step(.characteristics, app, peripheral), Step(.settle),
                Step(.subscribe, app, peripheral, pick(0...9)),
            ]
            switch pick(0...15) {
            case 0: return link
            case 14: return link + [Step(.crash, app)]
            case 15: return link + [Step(.settle)] + explore + [Step(.crash, app)]
            case 1: return link + [Step(.settle)] + explore
            case 2: return link + [Step(.settle)] + explore + (0..<pick(1...5)).map { _ in attribute(app, peripheral) }
            case 3: return link + [Step(.cancel, app, peripheral)]
            case 4: return link + [Step(.cancel, app, peripheral), Step(.connect, app, peripheral)]
            case 5: return link + [Step(.vanish, peripheral), Step(.appear, peripheral)]
            case 6: return link + [Step(.drop, app, peripheral)]
            case 7: return [Step(.silent, peripheral)] + link + [single(), Step(.loud, peripheral)]
            case 8: return [Step(pick([Verb.scan, .scanAll, .scanSensors]), app), single(), Step(.stop, app)]
            case 9: return [Step(.free, app), Step(pick([Verb.make, .keep]), app), Step(.settle)]
            case 10: return [Step(.subscribe, app, peripheral, pick(0...9)), Step(.cancel, app, peripheral)] + link
            case 11: return explore + [Step(.change, peripheral), attribute(app, peripheral)]
            case 12: return (0..<pick(2...6)).map { _ in attribute(app, peripheral) }
            default: return (0..<pick(1...4)).map { _ in single() }
            }
        }

        private mutating func hostWords(_ host: Int) -> [Step] {
            let (service, central) = (pick(0...Script.services - 1), pick(0...Script.centrals - 1))
            let publish = [Step(.publish, host, service)]
            let visit = [Step(.advertise, host), Step(.join, central)]
            switch pick(0...9) {
            case 0: return publish
            case 1: return publish + visit
            case 2: return publish + [Step(.withdraw, host, service)] + publish
            case 3: return [Step(.advertise, host), Step(.hush, host), Step(.advertise, host)]
            case 4: return visit + [Step(.leave, central), Step(.join, central)]
            case 5: return [Step(.withdrawAll, host)] + publish
            case 6: return publish + visit + [Step(.settle), Step(.withdraw, host, service)]
            case 7: return [Step(.free, host), Step(.make, host), Step(.settle)]
            case 8: return publish + visit + (0..<pick(1...5)).map { _ in Step(.update, host, service) }
            default: return (0..<Script.services).map { Step(.publish, host, $0) } + [Step(.hush, host)]
            }
        }

        private mutating func attribute(_ app: Int, _ peripheral: Int) -> Step {
            let verb = pick([
                Verb.read, .write, .command, .subscribe, .unsubscribe, .readDescriptor, .writeDescriptor, .readStale,
                .rssi,
                .services, .sensorService, .included, .characteristics, .descriptors,
            ])
            return verb.arity == 3 ? Step(verb, app, peripheral, pick(0...9)) : Step(verb, app, peripheral)
        }

        private mutating func single() -> Step {
            let (app, peripheral) = (pick(0...apps - 1), pick(0...peripherals - 1))
            switch pick(0...19) {
            case 0...3: return attribute(app, peripheral)
            case 4: return Step(.connect, app, peripheral)
            case 5: return Step(.cancel, app, peripheral)
            case 6: return Step(.drop, app, peripheral)
            case 7: return Step(.get, app, peripheral)
            case 8: return Step(pick([Verb.connected, .events]), app)
            case 9: return Step(.habit, app, pick(Habit.allCases).rawValue)
            case 10: return Step(.make, app)
            case 11:
                return Step(pick([Verb.guestConnect, .guestConnect, .guestEnd]), peripheral)
            case 12: return Step(pick([Verb.guestScan, .guestRest]))
            case 13: return Step(.crash, app)
            default:
                return Step(
                    pick([
                        Verb.end, .end, .vanish, .appear, .silent, .loud, .notify, .notify, .change, .forget, .flicker,
                    ]),
                    peripheral)
            }
        }

        private mutating func interruption() -> [Step] {
            switch pick(0...9) {
            case 0...4: return [single()]
            case 5: return [Step(.off)] + pause() + [Step(.power)]
            case 6: return [Step(pick([Verb.kill, .quit]))] + pause() + [Step(.start)]
            case 7: return [Step(.unplug)] + pause() + [Step(.plug)]
            case 8: return [Step(.hang, pick([3, 20, 80]))]
            default: return [Step(.end, pick(0...peripherals - 1))]
            }
        }
    }
}

// MARK: Shrinking

extension Script {
    /// The shortest script that `fails` still, as far as leaving out steps goes: halves first, then less and less
    /// (delta debugging).
    func shrunk(while fails: (Script) async -> Bool) async -> Script {
        var best = self
        var size = max(1, steps.count / 2)
        while true {
            var start = 0
            var isShorter = false
            while start < best.steps.count {
                var candidate = best
                candidate.steps.removeSubrange(start..<min(start + size, best.steps.count))
                if !candidate.steps.isEmpty, await fails(candidate) {
                    (best, isShorter) = (candidate, true)
                } else {
                    start += size
                }
            }
            if size == 1, !isShorter { return best }
            size = max(1, size / 2)
        }
    }
}
