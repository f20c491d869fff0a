import BluezKitProfiles
import Foundation
import Testing

/// Values of profiles as a broken or hostile device sends them.
enum Mutation {
    /// How many of each type are read: `BLUEZKIT_MUTATIONS=1000000`.
    static let count = ProcessInfo.processInfo.environment["BLUEZKIT_MUTATIONS"].flatMap { Int($0) } ?? 1_000

    /// Some bytes changed, added, repeated or cut off.
    static func mutated(_ good: [UInt8], using random: inout some RandomNumberGenerator) -> Data {
        var bytes = good
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let byte = UInt8(truncatingIfNeeded: random.next())
            switch Int.random(in: 0..<16, using: &random) {
            case 0..<4: bytes.append(byte)
            case 4..<8: bytes.removeLast(Int.random(in: 0...bytes.count, using: &random))
            case 8: if bytes.count <= 256 { bytes += bytes }
            default: if let index = bytes.indices.randomElement(using: &random) { bytes[index] = byte }
            }
        }
        return Data(bytes)
    }
}

/// Reads mutated bytes of a value: refused, or a value that is produced and read again without a change.
/// - Parameter check: What else holds for each value that is read.
func mutate<V: StructuredValue>(
    _ value: V, _ location: SourceLocation = #_sourceLocation, check: (V) -> Bool = { _ in true }
) {
    let good = [UInt8](value.data)
    #expect((try? V(value.data)) == value, sourceLocation: location)
    #expect(throws: CharacteristicValueError.missing, sourceLocation: location) { try V(nil) }
    var random = SystemRandomNumberGenerator()
    var (taken, changed, failed) = (0, 0, 0)
    let start = ContinuousClock.now
    for _ in 0..<Mutation.count {
        guard let read = try? V(Mutation.mutated(good, using: &random)) else { continue }
        taken += 1
        if (try? V(read.data)) != read { changed += 1 }
        if !check(read) { failed += 1 }
    }
    let each = (ContinuousClock.now - start) / Mutation.count
    #expect(
        taken > 0 && changed == 0 && failed == 0,
        "\(V.self): \(taken) read, \(changed) changed, \(failed) failed", sourceLocation: location)
    #expect(each < .milliseconds(10) * Worlds.slowness, "\(V.self): \(each) each", sourceLocation: location)
}
