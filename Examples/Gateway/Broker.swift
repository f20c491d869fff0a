import CMosquitto
import Foundation
import Synchronization

/// A connection to a broker, which a thread of its own makes again whenever it is lost.
///
/// `mosquitto_loop_start` has such a thread as well. But that ends for good at the first TLS error, unknown host or
/// refusal of MQTT 5 (libmosquitto's `mosquitto_loop_forever`), and does not tell why a connection cannot be made.
final class Broker: Sendable {
    enum Event: Sendable {
        case connected
        /// The broker has a message, or refuses it.
        case acknowledged(Int32, isRefused: Bool)
        /// The broker refuses a subscription.
        case forbidden
        /// There is no connection; it will be tried again.
        case away(BrokerProblem)
        /// ``disconnect()`` is done.
        case ended
    }

    /// A message to a topic that was subscribed to.
    struct Message: Sendable {
        let topic: String
        let payload: Data
        let isRetained: Bool
    }

    /// Few at a time: acknowledgements are limited by ``window``.
    let events: AsyncStream<Event>
    /// Messages are lost if more come at once than fit.
    let messages: AsyncStream<Message>
    /// How many messages that are not acknowledged libmosquitto shall have.
    static let window = 20
    /// The longest message that the broker may send, as a packet; MQTT 5 lets a client demand that.
    static let longestPacket: UInt32 = 8192
    /// The longest payload that is passed on. The rest of a longer one is cut off.
    static let longestPayload = 4096

    private let options: BrokerOptions
    // holds: made once, and libmosquitto's functions lock what they share (mosquitto_threaded_set)
    private nonisolated(unsafe) let client: OpaquePointer
    private let newEvent: AsyncStream<Event>.Continuation
    private let newMessage: AsyncStream<Message>.Continuation
    private let state = Mutex(State())
    private let ending = DispatchSemaphore(value: 0)

    private struct State {
        var isEnding = false
        // Of the present connection:
        var isAccepted = false
        /// A reason of MQTT 5 for which the broker refused or ended it.
        var reason: Int32?
        var log: [String] = []
    }

    /// - Parameters:
    ///   - name: Of this client. A broker has one client of a name: it ends a connection that is still there when the
    ///     next one comes, so that its last will cannot come late.
    ///   - will: What the broker publishes and retains if the connection is lost.
    init(_ options: BrokerOptions, name: String, will: (topic: String, payload: String)) throws {
        self.options = options
        (events, newEvent) = AsyncStream.makeStream()
        (messages, newMessage) = AsyncStream.makeStream(bufferingPolicy: .bufferingOldest(64))
        mosquitto_lib_init()
        guard let client = mosquitto_new(name, true, nil) else {
            throw BrokerProblem("libmosquitto cannot be used: \(String(cString: strerror(errno)))", .options)
        }
        self.client = client
        mosquitto_threaded_set(client, true)
        mosquitto_int_option(client, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5)
        mosquitto_max_inflight_messages_set(client, UInt32(Self.window))
        try check(mosquitto_will_set(client, will.topic, Int32(will.payload.utf8.count), will.payload, 1, true))
        if let user = options.user { try check(mosquitto_username_pw_set(client, user, options.password)) }
        if options.usesTLS {
            try check(
                options.authority == nil
                    ? mosquitto_int_option(client, MOSQ_OPT_TLS_USE_OS_CERTS, 1)
                    : mosquitto_tls_set(client, options.authority, nil, options.certificate, options.key, nil))
        }
        setCallbacks()
    }

    /// Begins to connect.
    func start() { Thread.detachNewThread { self.run() } }

    /// Hands a message to libmosquitto, which keeps it until it is acknowledged, and sends it again in the next
    /// connection if this one is lost.
    /// - Returns: Its number; nil: it cannot be sent.
    func publish(_ message: Outbox.Message) -> Int32? {
        var number: Int32 = 0
        let result = message.payload.withUnsafeBytes {
            mosquitto_publish_v5(
                client, &number, message.topic, Int32($0.count), $0.baseAddress, 1, message.isRetained, nil)
        }
        // Without a connection there is an error, and it is kept nevertheless.
        return [MOSQ_ERR_SUCCESS, MOSQ_ERR_NO_CONN].contains { $0.rawValue == result } ? number : nil
    }

    func subscribe(_ topic: String) { mosquitto_subscribe(client, nil, topic, 1) }

    /// Ends the connection in good order; the last will is not published. ``Event/ended`` follows.
    func disconnect() {
        state.withLock { $0.isEnding = true }
        mosquitto_disconnect_v5(client, 0, nil)
        ending.signal()
    }

    private func check(_ result: Int32) throws {
        guard result != MOSQ_ERR_SUCCESS.rawValue else { return }
        throw BrokerProblem(
            "libmosquitto refuses the options: \(String(cString: mosquitto_strerror(result)))", .options)
    }

    // MARK: The thread

    private func run() {
        // Seconds until lost messages or a lost connection are noticed: a ping after that time, and its answer.
        let keepAlive: Int32 = 15
        var (delay, brief) = (0.25, 0)
        var properties: OpaquePointer?
        mosquitto_property_add_int32(
            &properties, Int32(MQTT_PROP_MAXIMUM_PACKET_SIZE.rawValue), Self.longestPacket)
        while true {
            state.withLock { $0 = State(isEnding: $0.isEnding) }
            var result = mosquitto_connect_bind_v5(client, options.host, options.port, keepAlive, nil, properties)
            var code = errno
            var connection: ContinuousClock.Instant?
            while result == MOSQ_ERR_SUCCESS.rawValue {
                result = mosquitto_loop(client, keepAlive * 1000, 1)
                code = errno
                // Only now: what the last connection has not sent is queued again after the callback, and comes first.
                if connection == nil, state.withLock({ $0.isAccepted }) {
                    connection = .now
                    newEvent.yield(.connected)
                }
            }
            let end = state.withLock { $0 }
            if end.isEnding { break }
            if let connection {
                // After a brief one there is a longer pause: two clients of one name would take it from each other.
                (brief, delay) = .now - connection > .seconds(10) ? (0, 0.25) : (brief + 1, delay)
            }
            let isTaken = brief > 1 && connection != nil && end.reason == nil
            newEvent.yield(
                .away(isTaken ? .brief(options) : problem(result, code, end.reason, end.log, connection != nil)))
            _ = ending.wait(timeout: .now() + delay)
            if state.withLock({ $0.isEnding }) { break }
            delay = min(2 * delay, 10)
        }
        newEvent.yield(.ended)
    }

    private func problem(
        _ result: Int32, _ code: Int32, _ reason: Int32?, _ log: [String], _ wasConnected: Bool
    ) -> BrokerProblem {
        if let reason { return .refusal(reason, options) }
        if options.usesTLS, !wasConnected, let problem = BrokerProblem.encryption(log, result, code, options) {
            return problem
        }
        return .connection(result, code, options, wasConnected: wasConnected)
    }

    // MARK: Callbacks

    /// On the thread, within `mosquitto_loop`; that of the log also within other calls.
    private func setCallbacks() {
        // holds: retained, and never released: a broker lasts as long as the process
        mosquitto_user_data_set(client, Unmanaged.passRetained(self).toOpaque())
        mosquitto_connect_v5_callback_set(client) { _, context, reason, _, _ in
            Broker.of(context)?.state.withLock {
                $0.isAccepted = reason == 0
                $0.reason = reason == 0 ? nil : reason
            }
        }
        mosquitto_disconnect_v5_callback_set(client) { _, context, reason, _ in
            // Smaller numbers are errors of libmosquitto.
            if reason >= 0x80 { Broker.of(context)?.state.withLock { $0.reason = reason } }
        }
        mosquitto_publish_v5_callback_set(client) { _, context, number, reason, _ in
            Broker.of(context)?.newEvent.yield(.acknowledged(number, isRefused: reason >= 0x80))
        }
        mosquitto_subscribe_v5_callback_set(client) { _, context, _, count, reasons, _ in
            if count == 1, let reasons, reasons[0] >= 0x80 { Broker.of(context)?.newEvent.yield(.forbidden) }
        }
        mosquitto_message_callback_set(client) { _, context, message in
            guard let message = message?.pointee, let topic = message.topic else { return }
            let length = min(Int(message.payloadlen), Broker.longestPayload + 1)
            Broker.of(context)?.newMessage.yield(
                Message(
                    topic: String(cString: topic),
                    payload: message.payload.map { Data(bytes: $0, count: length) } ?? Data(),
                    isRetained: message.retain))
        }
        mosquitto_log_callback_set(client) { _, context, level, text in
            guard level == MOSQ_LOG_ERR, let text else { return }
            Broker.of(context)?.state.withLock { if $0.log.count < 8 { $0.log.append(String(cString: text)) } }
        }
    }

    private static func of(_ context: UnsafeMutableRawPointer?) -> Broker? {
        context.map { Unmanaged<Broker>.fromOpaque($0).takeUnretainedValue() }
    }
}
