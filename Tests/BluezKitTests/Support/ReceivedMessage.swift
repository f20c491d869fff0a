import CBluezDBus

@testable import BluezDBus

/// A message with these arguments, as it is received. It needs no bus.
func receivedMessage(_ values: [Value]) throws -> Message {
    guard let raw = cdbus_message_new_signal(nil, "/", "test.Signals", "Signal") else {
        throw BusError.limit("out of memory")
    }
    defer { dbus_message_unref(raw) }
    var writer = MessageWriter(raw)
    for value in values { try writer.write(value) }
    return try received(raw)
}

/// Reads `value` as it is read from a message.
func read<Result>(_ value: Value, _ body: (inout MessageReader) throws -> Result) throws -> Result {
    let message = try receivedMessage([value])
    var reader = message.reader
    return try withExtendedLifetime(message) { try body(&reader) }
}

/// What libdbus has made, as it is received.
func received(_ raw: OpaquePointer) throws -> Message {
    var (bytes, count) = (UnsafeMutablePointer<CChar>?.none, Int32(0))
    if dbus_message_get_serial(raw) == 0 { dbus_message_set_serial(raw, 1) }
    guard dbus_message_marshal(raw, &bytes, &count) != 0 else { throw BusError.limit("out of memory") }
    defer { dbus_free(bytes) }
    guard let message = Message(bytes: UnsafeRawBufferPointer(start: bytes, count: Int(count))) else {
        throw BusError.malformed("libdbus has made an invalid message")
    }
    return message
}
