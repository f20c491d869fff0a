import CMosquitto
import Foundation

/// Why there is no connection to the broker, and what can be done.
struct BrokerProblem: Error, CustomStringConvertible {
    /// What it takes to end it.
    enum Remedy {
        case time
        /// Other options, unless the broker has accepted these before: then it may be the broker's mistake.
        case options
        /// Another client has taken this one's name. Each would end the other's connection, without end.
        case name
    }
    let description: String
    let remedy: Remedy

    init(_ description: String, _ remedy: Remedy = .time) { (self.description, self.remedy) = (description, remedy) }

    /// The broker has given a reason of MQTT 5.
    static func refusal(_ reason: Int32, _ options: BrokerOptions) -> BrokerProblem {
        let broker = "the broker at \(options.place)"
        switch UInt32(bitPattern: reason) {
        case MQTT_RC_BAD_USERNAME_OR_PASSWORD.rawValue, MQTT_RC_NOT_AUTHORIZED.rawValue:
            guard let user = options.user else {
                return BrokerProblem(
                    "\(broker) demands a user and a password: give --user and --password-file", .options)
            }
            return BrokerProblem(
                "\(broker) refuses the user \(user): a wrong name or password; check --user and --password-file",
                .options)
        case MQTT_RC_UNSUPPORTED_PROTOCOL_VERSION.rawValue:
            return BrokerProblem(
                "\(broker) does not speak MQTT 5, which Mosquitto does since version 1.6; update it", .options)
        case MQTT_RC_SESSION_TAKEN_OVER.rawValue:
            return BrokerProblem(
                "another client with the same name has connected to \(broker): give each gateway a --topic of its own",
                .name)
        case MQTT_RC_SERVER_SHUTTING_DOWN.rawValue: return BrokerProblem("\(broker) shuts down")
        default:
            return BrokerProblem("\(broker) ends the connection: \(String(cString: mosquitto_reason_string(reason)))")
        }
    }

    /// - Parameters:
    ///   - log: What OpenSSL and libmosquitto report, which have no codes for it.
    ///   - result: Of libmosquitto.
    ///   - code: `errno`.
    static func encryption(
        _ log: [String], _ result: Int32, _ code: Int32, _ options: BrokerOptions
    ) -> BrokerProblem? {
        func has(_ text: String) -> Bool { log.contains { $0.localizedCaseInsensitiveContains(text) } }
        let broker = "the broker at \(options.place)"
        if has("host name verification failed") {
            return BrokerProblem(
                "the certificate of \(broker) is for another name: use the name that is in it in --broker",
                .options)
        }
        if has("certificate verify failed") {
            let authority = options.authority.map { "the one in \($0)" } ?? "one that this system trusts"
            return BrokerProblem(
                "the certificate of \(broker) has expired, or its authority is not \(authority): give that with --ca",
                .options)
        }
        if has("wrong version number") || has("packet length too long") {
            return BrokerProblem("\(broker) does not speak TLS at this port: use mqtt://, or its port for TLS")
        }
        if has("alert certificate required") || has("alert handshake failure") || has("alert bad certificate")
            || has("alert unknown ca")
        {
            return BrokerProblem(
                "\(broker) does not accept the certificate of this client, or demands one: check --cert and --key",
                .options)
        }
        if let file = log.first(where: { $0.hasPrefix("Error: Unable to load") || $0.contains("inconsistent") }) {
            return BrokerProblem(
                "TLS cannot be used, because a file is not as it should be: \(file)", .options)
        }
        // A broker without TLS ends the connection, as does one that is being stopped; libmosquitto 2.0.21 logs nothing
        // then. One that refuses a certificate ends it with what the client has sent after the handshake unread, so
        // that TCP resets it. If that is noticed before TLS's alert is read, the alert is lost.
        let isCutOff =
            [MOSQ_ERR_TLS.rawValue, MOSQ_ERR_CONN_LOST.rawValue].contains(result)
            || result == MOSQ_ERR_ERRNO.rawValue && [EPROTO, ECONNRESET, EPIPE].contains(code)
        if has("unexpected eof") || has("connection reset by peer") || has("broken pipe") || log.isEmpty && isCutOff {
            return BrokerProblem(
                "\(broker) ends the connection without saying why: it may not accept the certificate of this client, "
                    + "or demand one (check --cert and --key), or not speak TLS at this port (use mqtt://, or its port "
                    + "for TLS)")
        }
        return log.first.map { BrokerProblem("TLS with \(broker) fails: \($0)") }
    }

    /// A broker before Mosquitto 2.0.15 ends a connection without a reason when another client takes the name.
    static func brief(_ options: BrokerOptions) -> BrokerProblem {
        BrokerProblem(
            "connections to the broker at \(options.place) end at once, perhaps because another client has its name: "
                + "give each gateway a --topic of its own")
    }

    /// - Parameters:
    ///   - result: Of libmosquitto.
    ///   - code: `errno`, or what it is for `getaddrinfo`.
    static func connection(
        _ result: Int32, _ code: Int32, _ options: BrokerOptions, wasConnected: Bool
    ) -> BrokerProblem {
        let system =
            result == MOSQ_ERR_EAI.rawValue ? String(cString: gai_strerror(code)) : String(cString: strerror(code))
        switch result {
        case MOSQ_ERR_EAI.rawValue:
            return BrokerProblem("there is no host \(options.host) (\(system)): check --broker and the network")
        case MOSQ_ERR_ERRNO.rawValue where !wasConnected && [ECONNREFUSED, ENOENT].contains(code):
            return BrokerProblem("no broker listens at \(options.place) (\(system)): start it, or check --broker")
        case MOSQ_ERR_ERRNO.rawValue where !wasConnected:
            return BrokerProblem("\(options.place) cannot be reached (\(system)): check --broker and the network")
        case MOSQ_ERR_PROTOCOL.rawValue where !wasConnected:
            return BrokerProblem("\(options.place) is no MQTT broker: check --broker")
        case MOSQ_ERR_KEEPALIVE.rawValue: return BrokerProblem("the broker at \(options.place) does not answer")
        case MOSQ_ERR_CONN_LOST.rawValue, MOSQ_ERR_NO_CONN.rawValue, MOSQ_ERR_ERRNO.rawValue:
            return BrokerProblem(
                wasConnected
                    ? "the connection to the broker at \(options.place) was lost"
                    : "\(options.place) ends the connection at once: it may demand TLS (mqtts://), or be no broker")
        default:
            return BrokerProblem("\(options.place): \(String(cString: mosquitto_strerror(result)))")
        }
    }
}
