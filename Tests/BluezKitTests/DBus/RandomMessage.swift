import BluezKitSimulator

/// Messages as they are on the wire, in both byte orders. libdbus makes none of the other one.
struct RandomMessage {
    private var bytes: [UInt8] = []
    private let isBig: Bool

    // MARK: Making

    /// A valid message of random type, with random arguments.
    static func make(using generator: inout SeededGenerator) -> [UInt8] {
        let isBig = Bool.random(using: &generator)
        var body = RandomMessage(isBig: isBig)
        var signature = ""
        for _ in 0..<Int.random(in: 0...3, using: &generator) {
            let type = Self.type(depth: 0, using: &generator)
            signature += type
            var rest = Substring(type)
            body.add(&rest, depth: 0, using: &generator)
        }
        let type = UInt8.random(in: 1...4, using: &generator)
        var (fields, numbers) = ([(UInt8, String, String)](), [(UInt8, UInt32)]())
        if type == 1 || type == 4 { fields += [(1, "o", "/org/bluez/hci0"), (3, "s", "Changed")] }
        if type == 4 || Bool.random(using: &generator) { fields.append((2, "s", "org.bluez.Device1")) }
        if type == 3 { fields.append((4, "s", "org.bluez.Error.Failed")) }
        if Bool.random(using: &generator) { fields.append((7, "s", ":1.42")) }
        if Bool.random(using: &generator) { fields.append((6, "s", "a.b-c")) }
        if Bool.random(using: &generator) { fields.append((99, "s", "later")) }
        if type == 2 || type == 3 { numbers.append((5, 7)) }
        fields.shuffle(using: &generator)
        return message(
            type, isBig: isBig, serial: .random(in: 1 ... .max, using: &generator), fields: fields,
            numbers: numbers, signature: signature, body: body.bytes)
    }

    /// A signal with these arguments.
    static func signal(
        serial: UInt32 = 1, descriptors: UInt32 = 0, signature: String = "", body: [UInt8] = []
    ) -> [UInt8] {
        let fields: [(UInt8, String, String)] = [(1, "o", "/a"), (2, "s", "a.b"), (3, "s", "Signal")]
        var numbers: [(UInt8, UInt32)] = []
        if descriptors > 0 { numbers.append((9, descriptors)) }
        return message(
            4, isBig: false, serial: serial, fields: fields, numbers: numbers, signature: signature, body: body)
    }

    /// A signal with an `ay`, and an `ah` if it has descriptors.
    static func signal(serial: UInt32, descriptors: UInt32 = 0, bytes: [UInt8]) -> [UInt8] {
        var body = RandomMessage(isBig: false)
        body.add(UInt32(bytes.count))
        body.bytes += bytes
        if descriptors > 0 {
            body.add(descriptors * 4)
            for index in 0..<descriptors { body.add(index) }
        }
        return signal(
            serial: serial, descriptors: descriptors, signature: descriptors > 0 ? "ayah" : "ay", body: body.bytes)
    }

    private static func message(
        _ type: UInt8, isBig: Bool, serial: UInt32, fields: [(UInt8, String, String)], numbers: [(UInt8, UInt32)],
        signature: String, body: [UInt8]
    ) -> [UInt8] {
        var header = RandomMessage(isBig: isBig)
        header.bytes = [isBig ? UInt8(ascii: "B") : UInt8(ascii: "l"), type, 0, 1]
        header.add(UInt32(body.count))
        header.add(serial)
        header.add(UInt32(0))
        for (code, type, text) in fields {
            header.begin(code, type)
            header.add(text)
        }
        for (code, number) in numbers {
            header.begin(code, "u")
            header.add(number)
        }
        if !signature.isEmpty {
            header.begin(8, "g")
            header.addSignature(signature)
        }
        var length = RandomMessage(isBig: isBig)
        length.add(UInt32(header.bytes.count - 16))
        header.bytes.replaceSubrange(12..<16, with: length.bytes)
        header.align(8)
        return header.bytes + body
    }

    /// Changes something, often what has a meaning for others: lengths, types, zeros.
    static func damage(_ bytes: inout [UInt8], using generator: inout SeededGenerator) {
        for _ in 0..<Int.random(in: 1...2, using: &generator) {
            let index = Int.random(in: 0..<bytes.count, using: &generator)
            switch Int.random(in: 0..<6, using: &generator) {
            case 0: bytes[index] = 0
            case 1: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
            case 2: bytes[index] = "ybnqiuxtdsogvah(){}lB./_".utf8.randomElement(using: &generator) ?? 0
            case 3: bytes[index] &+= 1
            case 4: bytes[index] = .random(in: 0...255, using: &generator)
            default: bytes[index] = bytes.randomElement(using: &generator) ?? 0
            }
        }
    }

    // MARK: Types and values

    private static func type(depth: Int, using generator: inout SeededGenerator) -> String {
        let basic = "ybnqiuxtdsog"
        switch depth < 3 ? Int.random(in: 0..<16, using: &generator) : 0 {
        case 12: return "a" + type(depth: depth + 1, using: &generator)
        case 13:
            return "a{" + String(basic.randomElement(using: &generator) ?? "s")
                + type(depth: depth + 1, using: &generator) + "}"
        case 14:
            return "(" + type(depth: depth + 1, using: &generator) + type(depth: depth + 1, using: &generator) + ")"
        case 15: return "v"
        default: return String(basic.randomElement(using: &generator) ?? "s")
        }
    }

    private mutating func add(_ type: inout Substring, depth: Int, using generator: inout SeededGenerator) {
        switch type.removeFirst() {
        case "y": bytes.append(.random(in: 0...255, using: &generator))
        case "b": add(UInt32.random(in: 0...1, using: &generator))
        case "n", "q": add(UInt16.random(in: 0 ... .max, using: &generator))
        case "x", "t", "d": add(UInt64.random(in: 0 ... .max, using: &generator))
        case "s":
            add(["", "x", "Grüße", "日本語 \u{1F600}", "a long text of ASCII"].randomElement(using: &generator) ?? "")
        case "o": add(["/", "/a", "/org/bluez/hci0/dev_00"].randomElement(using: &generator) ?? "/")
        case "g": addSignature(["", "a{sv}", "y", "(yv)as"].randomElement(using: &generator) ?? "")
        case "v":
            let inside = Self.type(depth: depth + 1, using: &generator)
            var rest = Substring(inside)
            addSignature(inside)
            add(&rest, depth: depth + 1, using: &generator)
        case "a":
            add(UInt32(0))
            let length = bytes.count
            if let first = type.first {
                align("xtd({".contains(first) ? 8 : "iubsoah".contains(first) ? 4 : "nq".contains(first) ? 2 : 1)
            }
            let (element, start) = (type, bytes.count)
            var rest = element
            for _ in 0..<Int.random(in: 0...3, using: &generator) {
                rest = element
                add(&rest, depth: depth + 1, using: &generator)
            }
            if bytes.count == start { skip(&rest) }
            type = rest
            var size = RandomMessage(isBig: isBig)
            size.add(UInt32(bytes.count - start))
            bytes.replaceSubrange(length - 4..<length, with: size.bytes)
        case "(", "{":
            align(8)
            while let next = type.first, next != ")", next != "}" { add(&type, depth: depth + 1, using: &generator) }
            type.removeFirst()
        default: add(UInt32.random(in: 0 ... .max, using: &generator))
        }
    }

    private func skip(_ type: inout Substring) {
        var depth = 0
        repeat {
            let first = type.removeFirst()
            if first == "a" { continue }
            if first == "(" || first == "{" { depth += 1 }
            if first == ")" || first == "}" { depth -= 1 }
            if depth == 0 { return }
        } while !type.isEmpty
    }

    // MARK: Bytes

    private init(isBig: Bool) { self.isBig = isBig }

    private mutating func align(_ size: Int) { while bytes.count % size != 0 { bytes.append(0) } }

    private mutating func add<T: FixedWidthInteger>(_ number: T) {
        align(MemoryLayout<T>.size)
        withUnsafeBytes(of: isBig ? number.bigEndian : number.littleEndian) { bytes += $0 }
    }

    private mutating func add(_ text: String) {
        add(UInt32(text.utf8.count))
        bytes += text.utf8 + [0]
    }

    private mutating func addSignature(_ signature: String) {
        bytes += [UInt8(signature.utf8.count)] + signature.utf8 + [0]
    }

    private mutating func begin(_ code: UInt8, _ type: String) {
        align(8)
        bytes.append(code)
        addSignature(type)
    }
}
