public import BluezKit
import Foundation

/// The User Data service, 181C, as far as scales need it. BluezKit addition.
///
/// A client registers a user, or gives the consent code of one, with ``UserControlPoint``. Then it can read and write
/// that user's data, and increments ``DatabaseChangeIncrement`` when it has changed them.
/// - SeeAlso: Bluetooth SIG, User Data Service 1.0.
public enum UserData: ServiceProfile {
    /// 181C.
    public static let uuid = CBUUID(string: "181C")
    /// The data are optional, but one is there at least.
    public static let characteristics = [
        ProfileCharacteristic(FirstName.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(LastName.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(EmailAddress.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(Age.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(DateOfBirth.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(Gender.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(Weight.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(Height.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(Language.self, [.read, .write], isOptional: true),
        ProfileCharacteristic(DatabaseChangeIncrement.self, [.read, .write, .notify]),
        ProfileCharacteristic(UserIndex.self, .read),
        ProfileCharacteristic(UserControlPoint.self, [.write, .indicate]),
    ]

    /// A server's answer to a write without the consent of a user: the application error 0x80.
    public static var accessNotPermitted: CBATTError.Code {
        // `!`: an enum that is imported from C takes every number.
        CBATTError.Code(rawValue: 0x80)!
    }
}

/// The server side of ``UserData``. BluezKit addition.
///
/// What centrals read is what the app sets: the data of the user whose consent was given, and without one ``UserIndex``
/// without a number and values that have not been set.
public typealias UserDataService = ProfileService<UserData>

/// A text as a characteristic of its own. BluezKit addition.
public protocol TextValue: Hashable, Sendable {
    /// No text.
    init()
    /// The text, of any length. Invalid UTF-8 is read as U+FFFD.
    var text: String { get set }
}

extension TextValue {
    /// A text.
    public init(_ text: String) {
        self.init()
        self.text = text
    }

    /// The text as a characteristic of its own.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var bytes = Data(text.utf8)
        fields.rest(&bytes)
        text = String(cut: bytes)
    }
}

extension UserData {
    /// The first name of the user, characteristic 2A8A. BluezKit addition.
    public struct FirstName: TextValue, StructuredValue {
        /// 2A8A.
        public static let uuid = CBUUID(string: "2A8A")
        /// The name.
        public var text = ""
        /// None.
        public init() {}
    }

    /// The last name of the user, characteristic 2A90. BluezKit addition.
    public struct LastName: TextValue, StructuredValue {
        /// 2A90.
        public static let uuid = CBUUID(string: "2A90")
        /// The name.
        public var text = ""
        /// None.
        public init() {}
    }

    /// The e-mail address of the user, characteristic 2A87. BluezKit addition.
    public struct EmailAddress: TextValue, StructuredValue {
        /// 2A87.
        public static let uuid = CBUUID(string: "2A87")
        /// The address.
        public var text = ""
        /// None.
        public init() {}
    }

    /// The language of the user, characteristic 2AA2. BluezKit addition.
    public struct Language: TextValue, StructuredValue {
        /// 2AA2.
        public static let uuid = CBUUID(string: "2AA2")
        /// As in ISO 639-1: "en".
        public var text = ""
        /// None.
        public init() {}
    }

    /// The age of the user, characteristic 2A80. BluezKit addition.
    public struct Age: StructuredValue, Hashable {
        /// 2A80.
        public static let uuid = CBUUID(string: "2A80")
        /// In years.
        public var years: UInt8 = 0
        /// 0.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
            try fields.field("age", &years)
        }
    }

    /// When the user was born, characteristic 2A85; the numbers as transmitted. BluezKit addition.
    public struct DateOfBirth: StructuredValue, Hashable {
        /// 2A85.
        public static let uuid = CBUUID(string: "2A85")
        /// 1582 to 9999, of the Gregorian calendar; 0: unknown.
        public var year: UInt16 = 0
        /// 1 to 12; 0: unknown.
        public var month: UInt8 = 0
        /// 1 to 31; 0: unknown.
        public var day: UInt8 = 0
        /// Unknown.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
            try fields.field("year", &year)
            try fields.field("month", &month)
            try fields.field("day", &day)
        }
    }

    /// The gender of the user, characteristic 2A8C. BluezKit addition.
    public enum Gender: UInt8, EnumeratedValue, StructuredValue {
        /// The value.
        case male, female, unspecified
        /// 2A8C.
        public static let uuid = CBUUID(string: "2A8C")
        /// Unspecified.
        public init() { self = .unspecified }
    }

    /// The weight of the user, characteristic 2A98. BluezKit addition.
    public struct Weight: StructuredValue, Hashable {
        /// 2A98.
        public static let uuid = CBUUID(string: "2A98")
        /// In 5 g.
        public var weight: UInt16 = 0
        /// 0.
        public init() {}
        /// In kg.
        public var kilograms: Double { Double(weight) / 200 }
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
            try fields.field("weight", &weight)
        }
    }

    /// The height of the user, characteristic 2A8E. BluezKit addition.
    public struct Height: StructuredValue, Hashable {
        /// 2A8E.
        public static let uuid = CBUUID(string: "2A8E")
        /// In cm.
        public var centimeters: UInt16 = 0
        /// 0.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
            try fields.field("height", &centimeters)
        }
    }
}

/// Counts the changes of a user's data, characteristic 2A99: the larger number has the newer data. BluezKit addition.
public struct DatabaseChangeIncrement: StructuredValue, Hashable {
    /// 2A99.
    public static let uuid = CBUUID(string: "2A99")
    /// The number of changes.
    public var count: UInt32 = 0
    /// None.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("database change increment", &count)
    }
}

/// The user whose data are read and written, characteristic 2A9A. BluezKit addition.
public struct UserIndex: StructuredValue, Hashable {
    /// 2A9A.
    public static let uuid = CBUUID(string: "2A9A")
    /// The user; nil: unknown, because there was no consent.
    public var number: UInt8?
    /// Unknown.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("user index", &number, unknown: 0xFF)
    }
}
