import CoreBluetooth
import Foundation

/// Publishes lines, and carries out commands.
actor Publisher: Output {
    private let options: Options
    private let place: String
    private let broker: Broker
    private var outbox: Outbox
    private var left: Int
    private var writers: [UUID: Writer] = [:]
    private var isConnected = false
    private var wasConnected = false
    /// Why there is no connection, as it was reported.
    private var reportedProblem: String?
    private var reportedDropped = 0
    private var hasReportedFull = false
    private var isEnding = false
    private var hasEnded = false

    /// A connected peripheral that takes commands, which are carried out one after the other.
    private final class Writer {
        let write: Write
        var last: Task<Void, Never>?
        var waiting = 0

        init(_ write: @escaping Write) { self.write = write }
    }

    /// Commands that may wait for a peripheral.
    private static let longestLine = 16

    init(_ options: Options, _ brokerOptions: BrokerOptions) throws {
        self.options = options
        place = brokerOptions.place
        broker = try Broker(brokerOptions, name: options.topic, will: ("\(options.topic)/status", "offline"))
        outbox = Outbox(capacity: options.queue, window: Broker.window)
        left = options.count
    }

    /// Follows the connection to the broker.
    func run() async {
        Task { for await message in broker.messages { obey(message) } }
        broker.start()
        for await event in broker.events {
            switch event {
            case .connected: connected()
            case .away(let problem): away(problem)
            case .acknowledged(let number, let isRefused):
                let message = outbox.acknowledged(number, isRefused: isRefused)
                if isRefused, let message { report("the broker does not permit to publish to \(message.topic)") }
            case .forbidden: report("the broker does not permit to subscribe to \(options.topic)/+/set: no commands")
            case .ended: hasEnded = true
            }
            pump()
        }
    }

    // MARK: The broker

    private func connected() {
        isConnected = true
        if wasConnected {
            say("the broker is back; \(outbox.waiting) messages have waited, \(outbox.dropped) were dropped so far")
            outbox.reconnected()
        } else {
            say("connected to the broker at \(place)")
        }
        (wasConnected, reportedProblem) = (true, nil)
        state("\(options.topic)/status", Data("online".utf8))
        reportDropped()
        if options.writable != nil { broker.subscribe("\(options.topic)/+/set") }
    }

    private func away(_ problem: BrokerProblem) {
        isConnected = false
        switch problem.remedy {
        case .name: fail(problem.description)
        case .options where !wasConnected: fail(problem.description)
        case .options, .time: break
        }
        report("\(problem); it is tried again, and up to \(options.queue) messages wait")
    }

    private func report(_ problem: String) {
        guard problem != reportedProblem else { return }
        reportedProblem = problem
        say(problem)
    }

    private func pump() {
        if outbox.waiting == options.queue, outbox.dropped > reportedDropped, !hasReportedFull {
            hasReportedFull = true
            say("\(options.queue) messages wait: the oldest ones are dropped from now on")
        }
        if isConnected, outbox.waiting == 0 { reportDropped() }
        while isConnected, let message = outbox.take() { outbox.sent(message, as: broker.publish(message)) }
    }

    private func reportDropped() {
        guard outbox.dropped != reportedDropped else { return }
        (reportedDropped, hasReportedFull) = (outbox.dropped, false)
        state("\(options.topic)/dropped", Data("\(outbox.dropped)".utf8))
    }

    private func state(_ topic: String, _ payload: Data) {
        outbox.add(Outbox.Message(topic: topic, payload: payload, isState: true))
    }

    // MARK: Lines

    func put(_ line: Line, write: Write?) throws {
        guard let peripheral = line.peripheral, left > 0 else { return }
        let topic = "\(options.topic)/\(peripheral)"
        switch line.event {
        case .value:
            outbox.add(Outbox.Message(topic: "\(topic)/value", payload: try line.json))
            left -= 1
            if left == 0 { Task { await end() } }
        case .written: break
        case .connected, .disconnected, .problem:
            writers[peripheral] = write.map(Writer.init)
            state("\(topic)/state", try line.json)
            if line.event == .connected, let prefix = options.discovery {
                let characteristic = CBUUID(data: options.characteristic).uuidString
                let discovery = Discovery(options.topic, peripheral, line.name, characteristic, options.quantity)
                state("\(prefix)/sensor/\(peripheral)/\(characteristic)/config", try discovery.json)
            }
        }
        pump()
    }

    // MARK: Commands

    private func obey(_ message: Broker.Message) {
        // As was subscribed to: TOPIC/PERIPHERAL/set. A peripheral's name has 36 characters.
        let name = message.topic.dropFirst(options.topic.count + 1).dropLast("/set".count)
        guard name.utf8.count <= 64 else { return }
        let peripheral = UUID(uuidString: String(name))
        do throws(Command.Refusal) {
            let value = try Command(message).value
            guard let peripheral, let writer = writers[peripheral] else {
                throw Command.Refusal(description: "no such peripheral is connected and can be written")
            }
            guard writer.waiting < Self.longestLine else {
                throw Command.Refusal(description: "\(writer.waiting) commands wait already")
            }
            writer.waiting += 1
            writer.last = Task { [last = writer.last] in
                await last?.value
                var line = Line(event: .written, peripheral: peripheral, value: value.hex)
                do { try await writer.write(value) } catch {
                    line = Line(
                        event: .problem, peripheral: peripheral, value: value.hex, problem: error.localizedDescription)
                }
                writer.waiting -= 1
                answer(line, to: message)
            }
        } catch {
            answer(Line(event: .problem, peripheral: peripheral, problem: error.description), to: message)
        }
    }

    private func answer(_ line: Line, to message: Broker.Message) {
        guard let payload = try? line.json else { return }
        outbox.add(Outbox.Message(topic: "\(message.topic)/result", payload: payload, isRetained: false))
        pump()
    }

    // MARK: The end

    /// Publishes what waits, and that the gateway is offline, and ends the program.
    func end() async {
        guard !isEnding else { return }
        (isEnding, left) = (true, 0)
        await wait(.seconds(5)) { outbox.isEmpty }
        state("\(options.topic)/status", Data("offline".utf8))
        pump()
        await wait(.seconds(2)) { outbox.isEmpty }
        broker.disconnect()
        if isConnected { await wait(.seconds(2)) { hasEnded } }
        let lost = outbox.waiting == 0 ? "" : ", \(outbox.waiting) were not published"
        say("\(outbox.published) messages were published, \(outbox.dropped) were dropped\(lost)")
        exit(0)
    }

    /// Until there is nothing to wait for.
    private func wait(_ limit: Duration, until isDone: () -> Bool) async {
        let deadline = ContinuousClock.now + limit
        while isConnected, !isDone(), ContinuousClock.now < deadline { try? await Task.sleep(for: .milliseconds(10)) }
    }
}
