public import BluezKit
import Foundation

/// The product, vendor and version of a device: characteristic 2A50. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1, 3.9; GATT Specification Supplement, "PnP ID".
public struct PnPID: CharacteristicValue, Hashable {
    /// 2A50.
    public static let uuid = CBUUID(string: "2A50")

    /// The authority that assigned the vendor's number.
    public enum VendorSource: UInt8, Sendable {
        /// The Bluetooth SIG: the number is a company identifier.
        case bluetoothSIG = 1
        /// The USB Implementer's Forum.
        case usb = 2
    }

    /// The authority that assigned ``vendor``; nil: its number is not assigned.
    @Assigned public var source: VendorSource?
    /// The vendor.
    public var vendor: UInt16
    /// The product, as numbered by the vendor.
    public var product: UInt16
    /// In binary-coded decimal digits, JJ.M.N as 0xJJMN: 2.1.3 is 0x0213.
    public var version: UInt16

    /// A product.
    public init(source: VendorSource, vendor: UInt16, product: UInt16, version: UInt16) {
        _source = Assigned(wrappedValue: source)
        (self.vendor, self.product, self.version) = (vendor, product, version)
    }

    /// Reads an ID.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        _source = Assigned(number: try fields.uint8("vendor ID source"))
        vendor = try fields.uint16("vendor ID")
        product = try fields.uint16("product ID")
        version = try fields.uint16("product version")
    }

    /// The ID as transmitted.
    public var data: Data {
        var data = Data([$source ?? 0])
        for number in [vendor, product, version] { data.append(number) }
        return data
    }
}
