import CBluezDBus
import Glibc

@testable import BluezDBus

/// Compares the reader of messages with libdbus' own: they accept the same bytes, and read the same from them.
enum MessageComparison {
    /// What differs; nil: nothing.
    static func difference(_ bytes: UnsafeRawBufferPointer) -> String? {
        guard let start = bytes.baseAddress, bytes.count <= Int(CInt.max) else { return nil }
        let length = cdbus_message_length(start.assumingMemoryBound(to: UInt8.self), bytes.count)
        let needed = dbus_message_demarshal_bytes_needed(
            start.assumingMemoryBound(to: CChar.self), CInt(min(bytes.count, 16)))
        if bytes.count >= 16, (length < 0) != (needed < 0) || length > 0 && length != Int(needed) {
            // libdbus finds a fault in an array of fields that is too long only when it is there.
            if length >= 0 || needed <= 0 || Int(needed) <= bytes.count { return "length \(length), \(needed)" }
        }
        guard length > 0, length <= bytes.count else { return nil }
        // libdbus looks at a second message in the same bytes as well.
        let bytes = UnsafeRawBufferPointer(rebasing: bytes[..<length])
        let theirs = dbus_message_demarshal(start.assumingMemoryBound(to: CChar.self), CInt(length), nil)
        defer { if let theirs { dbus_message_unref(theirs) } }
        let ours = Message(bytes: bytes)
        guard let ours, let theirs else {
            return (ours == nil) == (theirs == nil) ? nil : ours == nil ? "refused" : "accepted"
        }
        if let difference = headerDifference(ours.header, theirs) { return difference }
        var (reader, iterator) = (withUnsafePointer(to: ours.header) { cdbus_reader_make($0) }, DBusMessageIter())
        dbus_message_iter_init(theirs, &iterator)
        return withExtendedLifetime(ours) { argumentDifference(&reader, &iterator) }
    }

    private static func headerDifference(_ ours: cdbus_message_t, _ theirs: OpaquePointer) -> String? {
        let numbers: [(UInt32, UInt32)] = [
            (UInt32(ours.type), UInt32(bitPattern: dbus_message_get_type(theirs))),
            (ours.serial, dbus_message_get_serial(theirs)), (ours.reply_serial, dbus_message_get_reply_serial(theirs)),
            (UInt32(ours.flags & 1), dbus_message_get_no_reply(theirs)),
        ]
        if let pair = numbers.first(where: { $0 != $1 }) { return "number \(pair)" }
        let texts: [(UnsafePointer<CChar>?, UnsafePointer<CChar>?)] = [
            (ours.path, dbus_message_get_path(theirs)), (ours.interface, dbus_message_get_interface(theirs)),
            (ours.member, dbus_message_get_member(theirs)), (ours.error_name, dbus_message_get_error_name(theirs)),
            (ours.destination, dbus_message_get_destination(theirs)), (ours.sender, dbus_message_get_sender(theirs)),
            (ours.signature, dbus_message_get_signature(theirs)),
        ]
        let pair = texts.first { ours, theirs in
            guard let ours, let theirs else { return (ours == nil) != (theirs == nil) }
            return strcmp(ours, theirs) != 0
        }
        return pair.map { "text \($0)" }
    }

    private static func argumentDifference(
        _ ours: inout cdbus_reader_t, _ theirs: inout DBusMessageIter
    ) -> String? {
        while true {
            let (type, theirType) = (cdbus_reader_type(&ours), dbus_message_iter_get_arg_type(&theirs))
            guard type == theirType else { return "type \(type), \(theirType)" }
            if type == CDBUS_TYPE_INVALID { return nil }
            var skipped = ours
            cdbus_reader_next(&skipped)
            let difference =
                dbus_type_is_container(type) != 0
                ? containerDifference(&ours, &theirs) : valueDifference(&ours, &theirs)
            if let difference { return difference }
            if skipped.position != ours.position || skipped.type != ours.type { return "\(type) is skipped otherwise" }
            dbus_message_iter_next(&theirs)
        }
    }

    private static func valueDifference(_ ours: inout cdbus_reader_t, _ theirs: inout DBusMessageIter) -> String? {
        let (type, isSwapped) = (cdbus_reader_type(&ours), ours.is_swapped)
        var length: UInt32 = 0
        let value = cdbus_reader_value(&ours, &length)
        switch type {
        case CDBUS_TYPE_STRING, CDBUS_TYPE_OBJECT_PATH, CDBUS_TYPE_SIGNATURE:
            var text: UnsafePointer<CChar>?
            dbus_message_iter_get_basic(&theirs, &text)
            guard let text, strlen(text) == Int(length) else { return "length of text" }
            return memcmp(text, value, Int(length) + 1) == 0 ? nil : "text"
        case CDBUS_TYPE_UNIX_FD: return length == 4 ? nil : "descriptor"
        default:
            var (number, theirNumber) = (UInt64(0), UInt64(0))
            dbus_message_iter_get_basic(&theirs, &theirNumber)
            memcpy(&number, value, Int(length))
            if isSwapped { number = number.byteSwapped >> UInt64(64 - 8 * length) }
            return number == theirNumber ? nil : "number \(number), \(theirNumber) of type \(type)"
        }
    }

    private static func containerDifference(_ ours: inout cdbus_reader_t, _ theirs: inout DBusMessageIter) -> String? {
        var (inner, theirInner) = (cdbus_reader_enter(&ours), DBusMessageIter())
        dbus_message_iter_recurse(&theirs, &theirInner)
        var (unread, partly, partlyRead) = (ours, ours, inner)
        var untouched = inner
        cdbus_reader_leave(&unread, &untouched)
        cdbus_reader_next(&partlyRead)
        cdbus_reader_leave(&partly, &partlyRead)
        if let difference = argumentDifference(&inner, &theirInner) { return difference }
        cdbus_reader_leave(&ours, &inner)
        let positions = [unread.position, partly.position, ours.position]
        return positions.allSatisfy { $0 == ours.position } ? nil : "the end of a container: \(positions)"
    }
}
