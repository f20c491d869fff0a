public import BluezKit
import Foundation

/// The Apple Notification Center Service, with which an iPhone tells an accessory about its notifications. The phone is
/// the server. BluezKit addition.
///
/// ``ANCSClient`` uses it. The phone has it only for accessories that are paired.
/// - SeeAlso: Apple, Apple Notification Center Service (ANCS) Specification.
public enum ANCS {
    /// 7905F431-B5CE-4E99-A40F-4B1E122D00D0.
    public static let uuid = CBUUID(string: "7905F431-B5CE-4E99-A40F-4B1E122D00D0")
    /// What is written, with response: an ``ANCSCommand``.
    public static let controlPoint = CBUUID(string: "69D1D8F3-45E1-49A8-9821-9BBDFDAAD9D9")
    /// What is notified in answer to commands, in parts: an ``ANCSResponse``.
    public static let dataSource = CBUUID(string: "22EAC6E9-24D6-4BB5-BE44-B36ACE7C7BFB")

    /// How long ``ANCSClient`` waits for the answer to one command. Apple's specification has no limit; this is that of
    /// a transaction of the Attribute Protocol (Core Spec 5.4, Vol 3, Part F, 3.3.3).
    public static let answerTimeLimit = Duration.seconds(30)
}

/// Why a phone refuses a command: the code of its ATT error. BluezKit addition.
/// - SeeAlso: Apple, ANCS Specification, "Error Codes".
public enum ANCSError: UInt8, Error, CaseIterable, LocalizedError, CustomStringConvertible {
    /// 0xA0.
    case unknownCommand = 0xA0
    /// 0xA1: the command is improperly formatted.
    case invalidCommand
    /// 0xA2: a parameter does not refer to anything on the phone, such as a notification that is gone.
    case invalidParameter
    /// 0xA3: the action was not performed.
    case actionFailed

    /// The ANCS error that an error of a write stands for, if any.
    init?(_ error: any Error) {
        guard let code = (error as? CBATTError)?.code.rawValue, let known = Self(rawValue: UInt8(clamping: code)) else {
            return nil
        }
        self = known
    }

    /// One sentence, without a full stop.
    public var description: String {
        switch self {
        case .unknownCommand: "the phone does not know the command"
        case .invalidCommand: "the phone cannot read the command"
        case .invalidParameter: "the phone does not have that notification, or that app"
        case .actionFailed: "the phone did not perform the action"
        }
    }

    /// The same text as `description`.
    public var errorDescription: String? { description }
}

/// A notification was added, modified or removed: the characteristic Notification Source. BluezKit addition.
/// - SeeAlso: Apple, ANCS Specification, "Notification Source".
public struct ANCSEvent: StructuredValue, Hashable {
    /// 9FBF120D-6301-42D9-8C58-25E699A21DBD.
    public static let uuid = CBUUID(string: "9FBF120D-6301-42D9-8C58-25E699A21DBD")

    /// What happened to the notification.
    public var kind = Kind.added
    /// How it is shown, and its actions.
    public var flags: Flags = []
    /// What it is about: ``category``, or a number of a later version.
    public var categoryNumber: UInt8 = 0
    /// What it is about; a number that is not known is ``Category/other``.
    public var category: Category {
        get { Category(rawValue: categoryNumber) ?? .other }
        set { categoryNumber = newValue.rawValue }
    }
    /// The active notifications of the category.
    public var count: UInt8 = 0
    /// Names the notification until the link ends.
    public var notification: UInt32 = 0

    /// Notification 0 was added.
    public init() {}

    /// What happened to a notification. BluezKit addition.
    public enum Kind: UInt8, EnumeratedValue {
        /// An event.
        case added, modified, removed
        /// Added.
        public init() { self = .added }
    }

    /// What a notification is about. BluezKit addition.
    public enum Category: UInt8, CaseIterable, Sendable {
        /// A category.
        case other, incomingCall, missedCall, voicemail, social, schedule, email, news, healthAndFitness,
            businessAndFinance, location, entertainment, activeCall
    }

    /// How a notification is shown, and its actions. BluezKit addition.
    public struct Flags: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt8
        /// Flags from their bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Without a sound.
        public static let silent = Self(rawValue: 1 << 0)
        /// Important.
        public static let important = Self(rawValue: 1 << 1)
        /// It is older than the link.
        public static let preExisting = Self(rawValue: 1 << 2)
        /// It has a positive action, such as answering a call.
        public static let positiveAction = Self(rawValue: 1 << 3)
        /// It has a negative action, such as dismissing it.
        public static let negativeAction = Self(rawValue: 1 << 4)
        /// All of these.
        public static let assigned = Self(rawValue: 0x1F)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("event ID", &kind)
        try fields.field("event flags", &flags)
        try fields.field("category ID", &categoryNumber)
        try fields.field("category count", &count)
        try fields.field("notification UID", &notification)
    }
}

/// What an accessory asks of the phone. BluezKit addition.
/// - SeeAlso: Apple, ANCS Specification, "Control Point".
public enum ANCSCommand: Hashable, Sendable {
    /// Attributes of a notification.
    case attributes(UInt32, [Attribute])
    /// The name of an app, by its identifier, as the attribute ``Attribute/appIdentifier`` has it.
    case appName(String)
    /// Performs an action.
    case perform(Action, UInt32)

    /// An attribute of a notification. BluezKit addition.
    public enum Attribute: UInt8, CaseIterable, Sendable {
        /// An attribute; ``date`` is yyyyMMdd'T'HHmmSS in the phone's local time, ``messageSize`` a decimal number.
        case appIdentifier, title, subtitle, message, messageSize, date, positiveActionLabel, negativeActionLabel

        /// For texts of any length, the most bytes that are asked for.
        var limit: UInt16? {
            switch self {
            case .title, .subtitle: 256
            case .message: 1024
            default: nil
            }
        }
    }

    /// An action. What it does depends on the notification. BluezKit addition.
    public enum Action: UInt8, Sendable {
        /// Accept, answer, show.
        case positive
        /// Dismiss, decline.
        case negative
    }

    /// The command as transmitted.
    public var data: Data {
        var data: Data
        switch self {
        case .attributes(let notification, let attributes):
            data = Data([0])
            data.append(number: notification, bytes: 4)
            for attribute in attributes {
                data.append(attribute.rawValue)
                if let limit = attribute.limit { data.append(limit) }
            }
        case .appName(let app): data = Data([1]) + Data(app.utf8.prefix { $0 != 0 }) + [0, 0]
        case .perform(let action, let notification):
            data = Data([2])
            data.append(number: notification, bytes: 4)
            data.append(action.rawValue)
        }
        return data
    }
}

/// The phone's answer to one ``ANCSCommand``, put together from values of the data source. BluezKit addition.
///
/// - Important: The texts come from other people and may contain line breaks and control characters.
public struct ANCSResponse: Sendable {
    /// What is wrong with an answer. BluezKit addition.
    public enum Invalid: Error, Hashable {
        /// It is the answer to another command.
        case otherCommand
        /// It has an attribute that was not asked for, or has had before.
        case unexpectedAttribute(UInt8)
        /// An attribute is longer than was asked for.
        case tooLong(Int)
        /// Bytes follow the last attribute.
        case trailingBytes
    }

    /// The attributes that are complete. The phone cuts them to the length that was asked for: a character of which the
    /// end is missing is left out. Other invalid UTF-8 becomes U+FFFD.
    public private(set) var texts: [ANCSCommand.Attribute: String] = [:]
    /// Of ``ANCSCommand/appName(_:)``: the name.
    public private(set) var appName: String?
    /// Nothing is missing.
    public var isComplete: Bool { missing.isEmpty && header.isEmpty }

    /// What the answer begins with, as far as it has not arrived.
    private var header: Data
    /// Attributes that have not arrived.
    private var missing: Set<UInt8>
    private let isApp: Bool
    private var rest = Data()
    /// A part of it has arrived.
    private(set) var hasBegun = false

    /// More is never asked for, nor held.
    private static let limit = 1024

    /// An answer of which nothing has arrived.
    public init(to command: ANCSCommand) {
        isApp = if case .appName = command { true } else { false }
        switch command {
        case .attributes(_, let attributes):
            (header, missing) = (command.data.prefix(5), Set(attributes.map(\.rawValue)))
        case .appName: (header, missing) = (command.data.dropLast(), [0])
        case .perform: (header, missing) = (Data(), [])
        }
    }

    /// Whether the answer can begin with a value of the data source. Others belong to earlier commands.
    func canBegin(with value: Data) -> Bool {
        let start = min(header.count, value.count)
        return start > 0 && value.prefix(start).elementsEqual(header.prefix(start))
    }

    /// Takes the next value of the data source.
    public mutating func append(_ value: Data) throws(Invalid) {
        hasBegun = true
        let start = min(header.count, value.count)
        guard value.prefix(start).elementsEqual(header.prefix(start)) else { throw .otherCommand }
        header = Data(header.dropFirst(start))
        rest += value.dropFirst(start)
        while !missing.isEmpty {
            guard let attribute = rest.first else { return }
            guard missing.contains(attribute) else { throw .unexpectedAttribute(attribute) }
            guard rest.count >= 3 else { return }
            let bytes = [UInt8](rest.prefix(3))
            let length = Int(bytes[1]) | Int(bytes[2]) << 8
            let known = isApp ? nil : ANCSCommand.Attribute(rawValue: attribute)
            guard length <= known?.limit.map(Int.init) ?? Self.limit else { throw .tooLong(length) }
            guard rest.count >= 3 + length else { return }
            let text = String(cut: rest.dropFirst(3).prefix(length))
            rest = Data(rest.dropFirst(3 + length))
            missing.remove(attribute)
            if isApp { appName = text } else { known.map { texts[$0] = text } }
        }
        guard rest.isEmpty else { throw .trailingBytes }
    }
}
