/// A central that is hostile or faulty.
extension VirtualCentral {
    /// Sends `count` random requests to random attributes: writes and prepared writes of any length at any offset,
    /// reads at any offset, invalid configurations, executes without prepared writes. It connects again when the link
    /// ends.
    /// - Parameters:
    ///   - count: The number of requests.
    ///   - seed: The same seed sends the same requests.
    /// - Returns: The number of answers, and how many of them were errors.
    @discardableResult
    public func storm(_ count: Int, seed: UInt64 = 1) async throws -> (answers: Int, errors: Int) {
        var dice = Dice(state: seed), answers = 0, errors = 0
        let simulator = try simulator
        guard let address = simulator.sync({ link?.peripheral.address }) else {
            throw VirtualCentralError.notConnected
        }
        for _ in 0..<count {
            if !isConnected { try await connect(to: address) }
            let targets = simulator.sync { services.flatMap(\.characteristics).flatMap(Self.attributes) }
            guard !targets.isEmpty else { throw VirtualCentralError.noCharacteristics }
            let target = targets[dice.roll(targets.count)]
            // holds: read and used on the simulator's queue only
            nonisolated(unsafe) let attribute = target
            let value = (0..<dice.roll(600)).map { _ in UInt8(truncatingIfNeeded: dice.roll(256)) }
            let offset = dice.roll(700)
            do {
                switch dice.roll(6) {
                case 0: try await step { link, answer in link.writePart(value, to: attribute, answer) }
                case 1:
                    try await step { (link: Link, answer: @escaping (Result<Void, ATTFailure>) -> Void) in
                        if case .value(let characteristic) = attribute { link.command(value, to: characteristic) }
                        answer(.success(()))
                    }
                case 2:
                    try await step { link, answer in link.prepare(value, for: attribute, offset: offset, answer) }
                case 3:
                    let _: [UInt8] = try await step { link, answer in
                        link.readPart(attribute, offset: offset, answer)
                    }
                case 4: try await execute(offset % 2 == 0)
                default:
                    try await step { link, answer in link.writePart(Array(value.prefix(2)), to: attribute, answer) }
                }
                answers += 1
            } catch is ATTFailure {
                answers += 1
                errors += 1
            } catch is VirtualCentralError {}  // the link has ended
        }
        return (answers, errors)
    }

    private static func attributes(_ characteristic: GATTTable.Characteristic) -> [Link.Attribute] {
        [.value(characteristic)] + characteristic.descriptors.map { .descriptor($0, characteristic.handle + 1) }
    }

    private struct Dice {
        var state: UInt64

        mutating func roll(_ sides: Int) -> Int {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return Int(truncatingIfNeeded: state >> 33) % max(sides, 1)
        }
    }
}
