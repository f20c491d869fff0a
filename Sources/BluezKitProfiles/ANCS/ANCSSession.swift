import BluezKit
import Foundation

/// What is asked of a phone, one command at a time, and what becomes of it. Pure: events in, actions out.
///
/// Each notification is asked about once, with what changes while it waits, and reported unless it goes away meanwhile
/// or the phone does not tell; each action is reported once. Of more than 1024 that wait the oldest are left out.
struct ANCSSession {
    enum Event {
        /// The phone's characteristics are there.
        /// - Parameter isNew: What was written to earlier ones is not answered any more.
        case opened(isNew: Bool)
        case notified(ANCSEvent)
        case perform(ANCSCommand.Action, UInt32)
        /// A write to the control point was answered: the oldest that was not.
        case written((any Error)?)
        /// The data source has notified a value.
        case received(Data)
        /// The time of the command with this number is up.
        case expired(Int)
        /// The phone will announce everything again, with other numbers.
        case ended
    }

    enum Action {
        case send(ANCSCommand)
        /// Reports ``Event/expired(_:)`` with this number after ``ANCS/answerTimeLimit``.
        case limitTime(Int)
        case report(ANCSClient.Event)
    }

    /// The command that has no answer yet: a phone handles one at a time.
    private struct Pending {
        let number: Int
        let command: ANCSCommand
        var response: ANCSResponse
        /// The write was answered, which can be heard of after the answer to the command.
        var isWritten = false
        var isDone: Bool { isWritten && response.isComplete }
    }

    /// The notification whose texts are asked for.
    private struct Asked {
        let event: ANCSEvent
        var texts: [ANCSCommand.Attribute: String]?
        var isRemoved = false
    }

    /// Of notifications that wait, and names of apps. A phone can have hundreds of old notifications.
    private static let limit = 1024

    private var isOpen = false
    /// Notifications that have not been asked about.
    private var events: [ANCSEvent] = []
    /// Actions that wait for their turn.
    private var performs: [(ANCSCommand.Action, UInt32)] = []
    private var pending: Pending?
    private var asked: Asked?
    /// By identifier. Empty: the phone does not tell, in this session.
    private var appNames: [String: String] = [:]
    private var count = 0
    /// The commands whose writes have not been answered.
    private var writes: [Int] = []
    private var actions: [Action] = []

    mutating func handle(_ event: Event) -> [Action] {
        switch event {
        case .opened(let isNew):
            isOpen = true
            if isNew { writes = [] }
        case .notified(let event): record(event)
        case .perform(let action, let notification): performs.append((action, notification))
        case .written(let error): written(error)
        case .received(let value): received(value)
        case .expired(let number):
            if let pending, pending.number == number {
                failed(pending.command, ANCSClient.NoAnswer(command: pending.command))
            }
        case .ended: end()
        }
        proceed()
        defer { actions = [] }
        return actions
    }

    /// No answer comes to the write of the command with this number.
    mutating func notWritten(_ number: Int) { writes.removeAll { $0 == number } }

    // MARK: Asking

    private mutating func proceed() {
        guard isOpen, pending == nil else { return }
        if !performs.isEmpty {
            let (action, notification) = performs.removeFirst()
            return send(.perform(action, notification))
        }
        if asked == nil, !events.isEmpty { asked = Asked(event: events.removeFirst()) }
        guard let asked else { return }
        guard let texts = asked.texts else {
            return send(.attributes(asked.event.notification, ANCSCommand.Attribute.allCases))
        }
        let app = texts[.appIdentifier] ?? ""
        if !asked.isRemoved, !app.isEmpty, appNames[app] == nil { return send(.appName(app)) }
        self.asked = nil
        if !asked.isRemoved {
            let name = appNames[app].flatMap { $0.isEmpty ? nil : $0 }
            report(.notification(ANCSNotification(event: asked.event, texts: texts, appName: name)))
        }
        proceed()
    }

    private mutating func send(_ command: ANCSCommand) {
        count += 1
        pending = Pending(number: count, command: command, response: ANCSResponse(to: command))
        writes.append(count)
        actions += [.send(command), .limitTime(count)]
    }

    private mutating func report(_ event: ANCSClient.Event) { actions.append(.report(event)) }

    // MARK: Answers

    private mutating func written(_ error: (any Error)?) {
        guard !writes.isEmpty else { return }
        let number = writes.removeFirst()
        guard let pending, pending.number == number else { return }  // it was not waited for
        if let error { return failed(pending.command, ANCSError(error) ?? error) }
        self.pending?.isWritten = true
        finishIfDone()
    }

    private mutating func received(_ value: Data) {
        guard let pending, !pending.response.isComplete,
            pending.response.hasBegun || pending.response.canBegin(with: value)
        else { return }
        do throws(ANCSResponse.Invalid) {
            try self.pending?.response.append(value)
            finishIfDone()
        } catch {
            failed(pending.command, error)
        }
    }

    private mutating func finishIfDone() {
        guard let pending, pending.isDone else { return }
        self.pending = nil
        switch pending.command {
        case .perform(let action, let notification): report(.performed(action, notification, nil))
        case .attributes: asked?.texts = pending.response.texts
        case .appName(let app): remember(app, as: pending.response.appName ?? "")
        }
    }

    private mutating func failed(_ command: ANCSCommand, _ error: any Error) {
        pending = nil
        // What is gone has no texts, and an app may have no name.
        let isExpected = error as? ANCSError == .invalidParameter
        switch command {
        case .perform(let action, let notification): return report(.performed(action, notification, error))
        case .attributes: asked = nil
        case .appName(let app): remember(app, as: "")
        }
        if !isExpected { report(.failed(error)) }
    }

    private mutating func remember(_ app: String, as name: String) {
        if appNames.count == Self.limit { appNames = [:] }
        appNames[app] = name
    }

    // MARK: Notifications

    private mutating func record(_ event: ANCSEvent) {
        guard event.kind == .removed else {
            if let index = events.firstIndex(where: { $0.notification == event.notification }) {
                let first = events[index]
                events[index] = event
                events[index].kind = first.kind
                events[index].flags.formUnion(first.flags.intersection(.preExisting))
                return
            }
            if events.count == Self.limit { events.removeFirst() }
            return events.append(event)
        }
        events.removeAll { $0.notification == event.notification }
        if asked?.event.notification == event.notification { asked?.isRemoved = true }
        report(.removed(event.notification))
    }

    private mutating func end() {
        if case .perform(let action, let notification)? = pending?.command {
            performs.insert((action, notification), at: 0)
        }
        for (action, notification) in performs { report(.performed(action, notification, ANCSClient.SessionEnded())) }
        (isOpen, events, performs, pending, asked) = (false, [], [], nil, nil)
        appNames = appNames.filter { !$0.value.isEmpty }
    }
}
