/// A Protocol/Service Multiplexer, which identifies an L2CAP channel of a device.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part A, 4.22.
public typealias CBL2CAPPSM = UInt16

extension CBL2CAPPSM {
    /// Such as `0x0080`.
    var hex: String {
        let digits = String(self, radix: 16)
        return "0x" + String(repeating: "0", count: 4 - digits.count) + digits
    }
}
