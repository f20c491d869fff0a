import CBluezDBus

@testable import BluezDBus

/// A message with these arguments, as it is received. It needs no bus.
func receivedMessage(_ values: [Value]) throws -> Message {
    guard let raw = cdbus_message_new_signal(nil, "/", "test.Signals", "Signal") else {
        throw BusError.limit("out of memory")
    }
    let message = Message(adopting: raw)
    var writer = MessageWriter(raw)
    for value in values { try writer.write(value) }
    return message
}

/// Reads `value` as it is read from a message.
func read<Result>(_ value: Value, _ body: (inout MessageReader) throws -> Result) throws -> Result {
    let message = try receivedMessage([value])
    var reader = message.reader
    return try withExtendedLifetime(message) { try body(&reader) }
}
