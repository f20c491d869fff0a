import CoreBluetooth
import Testing

/// The checker finds what is wrong, and only that.
@Suite struct ContractCheckerTests {
    typealias Call = ContractChecker.Call
    typealias Event = ContractChecker.Event
    typealias View = ContractChecker.View

    /// A call or a callback of the peripheral `p`.
    enum Step {
        case call(Call)
        case event(Event, View)

        static let on = Step.event(.state(.poweredOn), View())
        static let off = Step.event(.state(.poweredOff), View())
        static let reset = Step.event(.state(.resetting), View())
        static func connect(_ reconnects: Bool = false) -> Step { .call(.connect("p", reconnects: reconnects)) }
        static func cancel(_ number: Int = 1) -> Step { .call(.cancel("p", number)) }
        static func cancelled(_ number: Int = 1) -> Step { .call(.cancelled("p", number)) }
        static func ask(_ request: ContractChecker.Request) -> Step { .call(.request("p", request, service: "s")) }
        static func answer(_ request: ContractChecker.Request) -> Step { .event(.answer("p", request), View()) }
        static func notifying(_ on: Bool) -> Step { .event(.notifying("p", "c", on, service: "s"), View()) }
        static func value(error: Bool = false) -> Step { .event(.value("p", "c", hasError: error), View()) }
        static func up(_ state: CBPeripheralState = .connected, services: Bool = false) -> Step {
            .event(.connected("p"), View(peripheralState: state, hasServices: services))
        }
        static func down(
            error: Bool, reconnecting: Bool = false, _ state: CBPeripheralState = .disconnected,
            services: Bool = false
        ) -> Step {
            .event(
                .disconnected("p", isReconnecting: reconnecting, hasError: error),
                View(peripheralState: state, hasServices: services))
        }
        static func failed(error: Bool = true) -> Step {
            .event(.failed("p", hasError: error), View(peripheralState: .disconnected))
        }
        static func found(_ keys: String...) -> Step { .event(.discovered("p", keys: Set(keys)), View()) }
        static func scan(duplicates: Bool = false) -> Step { .call(.scan(duplicates: duplicates)) }
    }

    private func violations(_ steps: [Step], resumes: Bool = false) -> [String] {
        var checker = ContractChecker()
        checker.resumes = resumes
        return steps.flatMap { step -> [String] in
            switch step {
            case .call(let call):
                checker.note(call)
                return []
            case .event(let event, let view): return checker.check(event, view)
            }
        }
    }

    @Test("D10 a manager that resumes may continue scan and connection after a reset, but not after power-off")
    func resumes() {
        let before: [Step] = [.on, .scan(), .found("a"), .connect(), .up()]
        let after: [Step] = [.on, .found("a"), .up()]
        #expect(violations(before + [.reset] + after, resumes: true) == [])
        #expect(violations(before + [.off] + after, resumes: true).count == 2)
        #expect(violations(before + [.reset] + after).count == 3)
        // A daemon that exits reports "off" first.
        #expect(violations(before + [.off, .reset] + after, resumes: true) == [])
        #expect(violations(before + [.off, .reset] + after).count == 2)
    }

    @Test("RS-3 restored peripherals may connect or disconnect without a request; others may not")
    func restored() {
        func restored(_ isConnected: Bool) -> Step {
            .call(.restored("p", isConnected: isConnected, notifying: isConnected ? ["c": "s"] : [:]))
        }
        #expect(violations([restored(false), .on, .up(), .down(error: true)]) == [])
        #expect(violations([restored(true), .on, .value(), .down(error: true), .connect(), .up()]) == [])
        #expect(violations([restored(true), .on, .notifying(false)]) == [])
        #expect(violations([restored(true), .on, .notifying(false), .notifying(false)]).count == 1)
        #expect(violations([.on, .up()]).count == 1)
        #expect(violations([restored(true), .on, .up()]).count == 1)
        #expect(violations([restored(false), .on, .value()]).count == 1)
    }

    static let good: [[Step]] = [
        [.on, .connect(), .up(), .down(error: true)],
        [.on, .connect(), .up(), .cancel(), .cancelled(), .down(error: false)],
        [.on, .connect(), .cancel(), .cancelled(), .down(error: false), .connect(), .up()],
        // A call from elsewhere meets a callback that runs already.
        [.on, .connect(), .cancel(), .up(), .cancelled(), .down(error: false)],
        [.on, .connect(), .up(), .cancel(), .down(error: true), .cancelled()],
        [.on, .connect(), .cancel(), .failed(), .cancelled()],
        [.on, .connect(), .up(), .ask(.rssi), .cancel(), .answer(.rssi), .cancelled(), .down(error: false)],
        // Connect again before the disconnect callback.
        [.on, .connect(), .up(), .cancel(), .cancelled(), .connect(), .down(error: false, .connecting), .up()],
        [.on, .connect(), .up(), .connect(), .up(services: true), .down(error: true)],
        [.on, .connect(), .failed(), .connect(), .up()],
        [
            .on, .connect(true), .up(), .down(error: true, reconnecting: true, .connecting), .up(),
            .down(error: true, reconnecting: true, .connecting), .cancel(), .cancelled(), .down(error: false),
        ],
        [.on, .connect(), .up(), .off, .on, .connect(), .up()],
        [.on, .scan(), .found("a"), .found("a", "b"), .call(.stopScan(1)), .call(.scanStopped(1))],
        [.on, .scan(), .call(.stopScan(1)), .found("a"), .call(.scanStopped(1)), .scan(), .found("a")],
        [.on, .scan(), .call(.stopScan(1)), .scan(), .call(.scanStopped(1)), .found("a")],
        [.on, .scan(duplicates: true), .found("a"), .found("a")],
        [.on, .connect(), .up(), .ask(.services), .ask(.read("c")), .answer(.services), .value()],
        [.on, .connect(), .up(), .ask(.services), .ask(.rssi), .answer(.rssi)],  // the first answer was not observed
        [
            .on, .connect(), .up(), .ask(.notify("c")), .notifying(true), .value(), .ask(.notify("c")), .value(),
            .notifying(false), .ask(.read("c")), .value(error: true),
        ],
        [.on, .connect(), .up(), .ask(.rssi), .down(error: true), .connect(), .up(), .ask(.rssi), .answer(.rssi)],
        [.reset, .on], [.off, .on, .off],
    ]

    @Test("the contract checker accepts allowed behaviour", arguments: good.indices)
    func passes(_ index: Int) { #expect(violations(Self.good[index]) == []) }

    static let bad: [(rule: String, steps: [Step])] = [
        ("O-2", [.found("a")]),
        ("O-2", [.call(.connect("p", reconnects: false)), .up(), .on]),
        ("ST-3", [.on, .on]),
        ("O-4", [.event(.state(.poweredOn), View(isOnQueue: false))]),
        ("O-5", [.event(.state(.poweredOn), View(depth: 2))]),
        ("O-6", [.on, .found("a")]),
        ("O-6", [.on, .scan(), .call(.stopScan(1)), .call(.scanStopped(1)), .found("a")]),
        ("O-6", [.on, .scan(), .off, .on, .found("a")]),
        ("O-7", [.on, .scan(), .found("a"), .found("a")]),
        ("O-10", [.on, .connect(), .up(.connecting)]),
        ("O-10", [.on, .connect(), .up(services: true)]),
        ("O-10", [.on, .connect(), .up(), .up()]),
        ("O-11", [.on, .up()]),
        ("O-11", [.on, .connect(), .cancel(), .cancelled(), .up()]),
        ("O-11", [.on, .connect(), .cancel(), .cancelled(), .down(error: false), .up()]),
        ("O-11", [.on, .connect(), .cancel(), .cancelled(), .failed()]),
        ("O-11", [.on, .connect(), .cancel(), .cancelled(), .down(error: true)]),
        ("O-11", [.on, .connect(), .up(), .cancel(), .cancelled(), .connect(), .up()]),
        ("O-11", [.on, .failed()]),
        ("CN-13", [.on, .connect(), .failed(error: false)]),
        ("CN-3", [.on, .connect(), .up(), .failed()]),
        ("O-13", [.on, .down(error: false)]),
        ("O-13", [.on, .connect(), .up(), .cancel(), .cancelled(), .down(error: false), .down(error: false)]),
        ("O-13", [.on, .connect(), .up(), .down(error: true), .down(error: true)]),
        ("O-15", [.on, .connect(), .up(), .down(error: false)]),
        ("O-15", [.on, .connect(), .up(), .down(error: true, services: true)]),
        ("O-15", [.on, .connect(), .up(), .down(error: true, .connecting)]),
        ("O-15", [.on, .connect(), .up(), .ask(.rssi), .down(error: true), .answer(.rssi)]),
        ("O-17", [.on, .connect(true), .up(), .down(error: true)]),
        ("O-17", [.on, .connect(), .up(), .down(error: true, reconnecting: true, .connecting)]),
        (
            "O-17",
            [.on, .connect(true), .up(), .cancel(), .cancelled(), .down(error: false, reconnecting: true, .connecting)]
        ),
        ("O-18", [.on, .connect(), .up(), .off, .down(error: true)]),
        ("O-18", [.on, .off, .found("a")]),
        ("O-13", [.on, .connect(), .up(), .off, .on, .down(error: true)]),
        ("O-44", [.on, .connect(), .up(), .reset, .on, .connect(), .up()]),
        ("O-21", [.on, .connect(), .up(), .answer(.services)]),
        ("O-21", [.on, .connect(), .up(), .ask(.rssi), .answer(.rssi), .answer(.rssi)]),
        ("O-21", [.on, .connect(), .up(), .ask(.services), .ask(.rssi), .answer(.rssi), .answer(.services)]),
        ("O-21", [.on, .connect(), .up(), .ask(.rssi), .down(error: true), .connect(), .up(), .answer(.rssi)]),
        ("O-23", [.on, .connect(), .up(), .ask(.notify("c")), .value()]),
        (
            "O-23",
            [
                .on, .connect(), .up(), .ask(.notify("c")), .notifying(true), .ask(.notify("c")), .notifying(false),
                .value(),
            ]
        ),
        (
            "O-23",
            [
                .on, .connect(), .up(), .ask(.notify("c")), .notifying(true), .down(error: true), .connect(), .up(),
                .value(),
            ]
        ),
        (
            "O-23",
            [
                .on, .connect(), .up(), .ask(.notify("c")), .notifying(true),
                .event(.modified("p", services: ["s"]), View()), .value(),
            ]
        ),
        ("O-26", [.on, .connect(), .up(), .event(.ready("p", canSend: false), View())]),
        ("CN-10", [.on, .connect(), .up(), .ask(.rssi), .cancel(), .cancelled(), .answer(.rssi)]),
        ("O-45", [.on, .scan(), .call(.released), .found("a")]),
        (
            "O-46",
            [
                .on, .connect(),
                .event(.failed("p", hasError: true), View(peripheralState: .disconnected, isKnownError: false)),
            ]
        ),
    ]

    @Test("a violation is reported once with the rule's number", arguments: bad.indices)
    func reports(_ index: Int) {
        let found = violations(Self.bad[index].steps)
        #expect(found.count == 1 && found[0].contains(Self.bad[index].rule), "\(found)")
    }

    @Test("the contract checker lists outstanding callbacks")
    func owed() {
        var checker = ContractChecker()
        _ = checker.check(.state(.poweredOn))
        checker.note(.connect("p", reconnects: false))
        #expect(checker.owed.isEmpty)  // may take forever
        _ = checker.check(.connected("p"), View(peripheralState: .connected))
        checker.note(.request("p", .rssi))
        #expect(checker.owed.count == 1)
        checker.note(.cancel("p", 1))
        #expect(checker.owed.count == 2)
        checker.note(.cancelled("p", 1))
        _ = checker.check(
            .disconnected("p", isReconnecting: false, hasError: false), View(peripheralState: .disconnected))
        #expect(checker.owed.isEmpty)
    }

    @Test("violations of a manager reach the checker")
    func isWired() async throws {
        let found = EventLog<String>()
        let central = Central(try await SimulatedWorld(), watch: ContractWatch { found.append($0) })
        try await central.powerOn()
        _ = try await central.find("Rig Heart")
        #expect(found.all.isEmpty)
        central.watch.note(.released)  // though it was not
        central.manager.scanForPeripherals(withServices: nil)
        _ = try await found.next("violation") { $0.contains("O-45") ? true : nil }
    }
}
