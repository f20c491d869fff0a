import BluezKit
import Foundation
import Testing

@testable import BluezKitProfiles

/// A phone, and all that becomes of what it is asked. It answers when a test says so.
private struct ModelPhone {
    var session = ANCSSession()
    /// Commands whose writes have not been answered.
    var unwritten: [Int] = []
    /// The command that waits for its answer, and whether its write was answered.
    private(set) var current: (number: Int, command: ANCSCommand, isWritten: Bool, rest: Data)?
    private(set) var commands: [ANCSCommand] = []
    private(set) var reported: [UInt32: Int] = [:]
    private(set) var performed: [UInt32: [String]] = [:]
    private(set) var errors: [any Error] = []
    /// Notifications of which the phone told nothing.
    var dropped: Set<UInt32> = []
    var removed: Set<UInt32> = []
    private var pendingCommand: ANCSCommand?

    init() { handle(.opened(isNew: true)) }

    mutating func handle(_ event: ANCSSession.Event) {
        for action in session.handle(event) {
            switch action {
            case .send(let command):
                #expect(pendingCommand == nil && current == nil, "one command at a time")
                pendingCommand = command
                commands.append(command)
            case .limitTime(let number):
                guard let command = pendingCommand else {
                    Issue.record("a limit without a command")
                    continue
                }
                unwritten.append(number)
                (current, pendingCommand) = ((number, command, false, Self.answer(to: command)), nil)
            case .report(.notification(let notification)):
                reported[notification.event.notification, default: 0] += 1
                #expect(!removed.contains(notification.event.notification), "it is gone")
            case .report(.performed(_, let uid, let error)):
                performed[uid, default: []].append(error.map { "\($0)" } ?? "done")
            case .report(.failed(let error)): errors.append(error)
            case .report: break
            }
        }
    }

    static func answer(to command: ANCSCommand) -> Data {
        func attribute(_ number: UInt8, _ text: String) -> Data {
            Data([number, UInt8(text.utf8.count), 0]) + text.utf8
        }
        switch command {
        case .attributes(let uid, let attributes):
            let texts = attributes.map { attribute($0.rawValue, $0 == .appIdentifier ? "app\(uid % 3)" : "text") }
            return command.data.prefix(5) + texts.reduce(Data(), +)
        case .appName: return command.data.dropLast() + attribute(0, "App")
        case .perform: return Data()
        }
    }

    /// The oldest write is answered.
    mutating func write(_ error: (any Error)? = nil) {
        guard !unwritten.isEmpty else { return }
        let number = unwritten.removeFirst()
        if current?.number == number {
            current?.isWritten = true
            if error != nil { drop() } else { finish() }
        }
        handle(.written(error))
    }

    /// The next part of the answer.
    mutating func send(_ count: Int) {
        guard let rest = current?.rest, !rest.isEmpty else { return }
        current?.rest = Data(rest.dropFirst(count))
        finish()
        handle(.received(Data(rest.prefix(count))))
    }

    /// Something between answers.
    mutating func sendWhatIsNoAnswer() {
        guard current.map({ $0.rest.count == Self.answer(to: $0.command).count }) ?? true else { return }
        handle(.received(Data([3, 7, 7])))
    }

    private mutating func finish() { if let current, current.isWritten, current.rest.isEmpty { self.current = nil } }

    private mutating func drop() {
        if case .attributes(let uid, _) = current?.command { dropped.insert(uid) }
        current = nil
    }

    mutating func expire() {
        guard let number = current?.number else { return }
        drop()
        handle(.expired(number))
    }

    /// Everything is answered.
    mutating func drain() {
        while current != nil || !unwritten.isEmpty {
            write()
            send(.max)
        }
    }
}

@Suite("What is asked of a phone")
struct ANCSSessionTests {
    private static func event(_ uid: UInt32, _ kind: ANCSEvent.Kind = .added) -> ANCSSession.Event {
        .notified(ANCSEvent { ($0.kind, $0.notification) = (kind, uid) })
    }

    private static func refusal(_ code: Int) -> CBATTError? { CBATTError.Code(rawValue: code).map { CBATTError($0) } }

    @Test("an answer may come before the answer to its write; then the next command waits for both")
    func earlyAnswer() {
        var phone = ModelPhone()
        phone.handle(Self.event(7))
        phone.handle(.perform(.negative, 8))
        phone.send(.max)
        #expect(phone.commands.count == 1)
        phone.write()
        #expect(phone.commands.last == .perform(.negative, 8) && phone.performed.isEmpty)
        phone.write()
        #expect(phone.performed == [8: ["done"]])
        phone.drain()
        #expect(phone.reported == [7: 1] && phone.errors.isEmpty)
    }

    @Test("a phone that does not answer is not waited for longer than the limit; what comes later is ignored")
    func silence() {
        #expect(ANCS.answerTimeLimit == .seconds(30))
        var phone = ModelPhone()
        for uid in [7, 9] as [UInt32] { phone.handle(Self.event(uid)) }
        phone.write()
        let answer = ModelPhone.answer(to: phone.commands[0])
        phone.handle(.received(answer.prefix(9)))
        phone.expire()
        #expect(
            phone.errors.map { "\($0)" } == [
                "the phone was asked about notification 7, and has not answered for 30 s"
            ])
        // The rest comes late, and then what is waited for now.
        phone.handle(.received(Data(answer.dropFirst(9))))
        phone.drain()
        #expect(phone.reported == [9: 1] && phone.errors.count == 1)
        // The limit of a command that was answered does nothing.
        phone.handle(.expired(2))
        #expect(phone.errors.count == 1)
        phone.handle(.perform(.positive, 9))
        phone.expire()
        phone.write()  // too late
        let text = "the phone was asked to perform an action of notification 9, and has not answered for 30 s"
        #expect(phone.performed == [9: [text]])
    }

    @Test("refusals are Apple's; what is gone is not an error")
    func refusals() {
        var phone = ModelPhone()
        phone.handle(Self.event(1))
        phone.write(Self.refusal(0xA2))
        #expect(phone.errors.isEmpty && phone.reported.isEmpty)
        phone.handle(Self.event(2))
        phone.write(Self.refusal(0xA1))
        #expect(phone.errors as? [ANCSError] == [.invalidCommand])
        phone.handle(.perform(.positive, 3))
        phone.write(Self.refusal(0xA3))
        #expect(phone.performed == [3: ["the phone did not perform the action"]])
        #expect(ANCSError.allCases.map(\.rawValue) == [0xA0, 0xA1, 0xA2, 0xA3])
        #expect(Self.refusal(0x0E).flatMap { ANCSError($0) } == nil && ANCSError(CBError(.unknown)) == nil)
    }

    @Test("the end of a session reports the actions whose outcome is not known, and begins afresh")
    func ends() {
        var phone = ModelPhone()
        phone.handle(.perform(.positive, 1))
        phone.handle(.perform(.negative, 2))
        phone.handle(Self.event(3))
        phone.handle(.ended)
        let text = "\(ANCSClient.SessionEnded())"
        #expect(phone.performed == [1: [text], 2: [text]])
        phone.handle(.written(nil))
        phone.handle(.expired(1))
        phone.handle(.received(Data([0, 3, 0, 0, 0])))
        #expect(phone.commands.count == 1 && phone.reported.isEmpty && phone.performed[1]?.count == 1)
        var next = ModelPhone()
        next.handle(.ended)
        next.handle(Self.event(3))
        #expect(next.commands.isEmpty)
        next.handle(.opened(isNew: true))
        next.drain()
        #expect(next.reported == [3: 1])
    }

    @Test("bytes after a complete answer are ignored, also before the answer to its write")
    func repeatedAnswer() {
        var phone = ModelPhone()
        phone.handle(Self.event(7))
        phone.send(.max)
        phone.handle(.received(ModelPhone.answer(to: phone.commands[0])))
        phone.drain()
        #expect(phone.reported == [7: 1] && phone.errors.isEmpty)
    }

    @Test("changes of a notification that waits are read with it, and displace no other")
    func changes() {
        var phone = ModelPhone()
        for uid in 1...3 as ClosedRange<UInt32> { phone.handle(Self.event(uid)) }
        for _ in 0..<2_000 { phone.handle(Self.event(2, .modified)) }
        phone.drain()
        #expect(phone.reported == [1: 1, 2: 1, 3: 1] && phone.errors.isEmpty)
        // It is as new as it was, with what else the last event says.
        var session = ANCSSession()
        _ = session.handle(.notified(ANCSEvent { ($0.notification, $0.flags) = (5, .preExisting) }))
        _ = session.handle(.notified(ANCSEvent { ($0.kind, $0.notification, $0.flags) = (.modified, 5, .important) }))
        _ = session.handle(.opened(isNew: true))
        _ = session.handle(.written(nil))
        let texts = (0..<8).flatMap { [$0, 0, 0] as [UInt8] }
        let reported = session.handle(.received(Data([0, 5, 0, 0, 0] + texts))).compactMap { action in
            if case .report(.notification(let notification)) = action { notification.event } else { nil }
        }
        #expect(reported == [ANCSEvent { ($0.notification, $0.flags) = (5, [.preExisting, .important]) }])
    }

    @Test("an app whose name the phone has not told is asked about again in the next session")
    func names() {
        var phone = ModelPhone()
        phone.handle(Self.event(1))
        phone.write()
        phone.send(.max)
        phone.write()
        phone.expire()
        #expect(phone.commands.last == .appName("app1") && phone.reported == [1: 1] && phone.errors.count == 1)
        phone.handle(.ended)
        phone.handle(.opened(isNew: true))
        phone.handle(Self.event(4))
        phone.drain()
        #expect(phone.commands.filter { $0 == .appName("app1") }.count == 2)
    }

    @Test("in any order of events each notification and each action is answered exactly once")
    func model() {
        // `BLUEZKIT_ROUNDS=20000`: make test-all.
        let rounds = ProcessInfo.processInfo.environment["BLUEZKIT_ROUNDS"].flatMap { Int($0) } ?? 200
        for round in 0..<rounds {
            var dice = SystemRandomNumberGenerator()
            var phone = ModelPhone()
            var posted: [UInt32] = []
            var asked: Set<UInt32> = []
            for step in 0..<60 as Range<UInt32> {
                switch Int.random(in: 0..<11, using: &dice) {
                case 0, 1:
                    posted.append(step)
                    phone.handle(Self.event(step))
                case 2:
                    asked.insert(step)
                    phone.handle(.perform(.positive, step))
                case 3:
                    guard let uid = posted.randomElement(using: &dice) else { break }
                    phone.removed.insert(uid)
                    phone.handle(Self.event(uid, .removed))
                case 4: phone.write(Self.refusal([0xA2, 0xA3, 0x0E].randomElement(using: &dice) ?? 0xA0))
                case 5: phone.expire()
                case 6: phone.sendWhatIsNoAnswer()
                case 7, 8: phone.write()
                default: phone.send(.random(in: 1...200, using: &dice))
                }
            }
            phone.drain()
            for uid in posted where !phone.removed.contains(uid) {
                #expect(phone.reported[uid, default: 0] == (phone.dropped.contains(uid) ? 0 : 1), "round \(round)")
            }
            #expect(phone.reported.values.allSatisfy { $0 == 1 })
            #expect(Set(phone.performed.keys) == asked && phone.performed.values.allSatisfy { $0.count == 1 })
        }
    }
}
