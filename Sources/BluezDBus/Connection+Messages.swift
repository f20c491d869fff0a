import CBluezDBus

extension Connection {
    // MARK: Writing messages

    func message(for call: MethodCall) throws(BusError) -> OpaquePointer {
        let names = [call.destination, call.interface, call.member]
        guard names.allSatisfy(isCString),
            let message = cdbus_message_new_call(call.destination, call.path.rawValue, call.interface, call.member)
        else { throw .invalid(names.joined(separator: " ")) }
        dbus_message_set_auto_start(message, call.mayStartDestination ? 1 : 0)
        if let arguments = call.arguments { try write(arguments, into: message) }
        return message
    }

    func write(
        _ arguments: (inout MessageWriter) throws(BusError) -> Void, into message: OpaquePointer
    ) throws(BusError) {
        var writer = MessageWriter(message)
        do { try arguments(&writer) } catch {
            dbus_message_unref(message)
            throw error
        }
    }

    // MARK: Answering and signalling

    /// Answers a call. Does nothing if the caller expects no answer.
    public func reply(to call: IncomingCall, _ arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil) {
        guard call.expectsReply else { return }
        guard let message = cdbus_message_new_return(call.serial, call.senderC) else { return }
        do {
            if let arguments { try write(arguments, into: message) }
            try send(message, whileLeaving: true)
        } catch {
            refuse(call, name: "org.freedesktop.DBus.Error.Failed", message: error.message)
        }
    }

    /// Answers a call with an error. A `name` that is not an error name becomes `…Error.Failed`.
    public func refuse(_ call: IncomingCall, name: String, message: String) {
        guard call.expectsReply else { return }
        let answer =
            cdbus_message_new_error(call.serial, call.senderC, name, message)
            ?? cdbus_message_new_error(
                call.serial, call.senderC, "org.freedesktop.DBus.Error.Failed", message)
        if let answer { _ = try? send(answer, whileLeaving: true) }
    }

    /// Sends a signal, to all subscribers of a matching rule or only to `destination`.
    public func emit(
        path: ObjectPath, interface: String, member: String, to destination: String? = nil,
        _ arguments: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        guard [destination ?? "", interface, member].allSatisfy(isCString),
            let message = cdbus_message_new_signal(destination, path.rawValue, interface, member)
        else { throw .invalid("signal \(interface).\(member)") }
        try write(arguments, into: message)
        try send(message)
    }

    /// Whether this bus transfers file descriptors: those over tcp or ssh do not.
    public var carriesFileDescriptors: Bool {
        presence.isOpen && dbus_connection_can_send_type(raw, CDBUS_TYPE_UNIX_FD) != 0
    }

    // MARK: Match rules

    /// Asks the bus for the signals of `rule`, until ``removeMatch(_:)`` has been called as often.
    public func addMatch(_ rule: MatchRule) {
        assertOnQueue()
        matches[rule, default: 0] += 1
        if matches[rule] == 1 { setMatch(rule, "AddMatch") }
    }

    /// Undoes one ``addMatch(_:)``; with the last one the bus stops sending these signals.
    public func removeMatch(_ rule: MatchRule) {
        assertOnQueue()
        guard let users = matches[rule] else { return }
        matches[rule] = users > 1 ? users - 1 : nil
        if users == 1 { setMatch(rule, "RemoveMatch") }
    }

    /// The number of different rules that the bus holds for this connection.
    public var matchRuleCount: Int { matches.count }

    private func setMatch(_ rule: MatchRule, _ member: String) {
        // A bus refuses a rule only at its limit; the answer is awaited so that the refusal can be reported.
        call(.bus(member) { (writer) throws(BusError) in try writer.write(rule.text) }, deadline: .seconds(30)) {
            [weak self] result in
            if case .failure(let error) = result { self?.onRuleRefused?(rule, error) }
        }
    }
}

/// C would treat a text with a NUL character as a shorter one, which may be another program's name.
private func isCString(_ text: String) -> Bool { !text.utf8.contains(0) }
