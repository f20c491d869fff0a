public import BluezKit

/// What a battery does, characteristic 2BED. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.2; GATT Specification Supplement, "Battery Level Status".
public struct BatteryLevelStatus: StructuredValue, Hashable {
    /// 2BED.
    public static let uuid = CBUUID(string: "2BED")

    /// The battery is there.
    public var isPresent = false
    /// A power source with a wire.
    @Assigned public var wiredPower: ExternalPower? = .unknown
    /// A power source without a wire.
    @Assigned public var wirelessPower: ExternalPower? = .unknown
    /// Whether it is charged.
    @Assigned public var chargeState: ChargeState? = .unknown
    /// How much it is charged.
    @Assigned public var chargeLevel: ChargeLevel? = .unknown
    /// How it is charged; nil: a number that is not assigned.
    @Assigned public var chargingType: ChargingType? = .unknownOrNotCharging
    /// Why it cannot be charged.
    public var chargingFaults: ChargingFaults = []
    /// The battery, by a number of the Bluetooth name space of descriptions; nil: not included.
    public var identifier: UInt16?
    /// In %, 0 to 100; nil: not included.
    public var level: UInt8?
    /// What else; nil: not included.
    public var additional: AdditionalStatus?

    /// Not there.
    public init() {}

    /// A power source. BluezKit addition.
    public enum ExternalPower: UInt8, EnumeratedValue {
        /// The source is not connected; it is; it may be.
        case notConnected, connected, unknown
        /// It may be connected.
        public init() { self = .unknown }
    }

    /// Whether a battery is charged. BluezKit addition.
    public enum ChargeState: UInt8, EnumeratedValue {
        /// The state: it is discharged by what is used, or on its own.
        case unknown, charging, dischargingActive, dischargingInactive
        /// Unknown.
        public init() { self = .unknown }
    }

    /// How much a battery is charged. BluezKit addition.
    public enum ChargeLevel: UInt8, EnumeratedValue {
        /// The level.
        case unknown, good, low, critical
        /// Unknown.
        public init() { self = .unknown }
    }

    /// How a battery is charged. BluezKit addition.
    public enum ChargingType: UInt8, EnumeratedValue {
        /// The way.
        case unknownOrNotCharging, constantCurrent, constantVoltage, trickle, float
        /// Unknown, or not at all.
        public init() { self = .unknownOrNotCharging }
    }

    /// Why a battery cannot be charged. BluezKit addition.
    public struct ChargingFaults: OptionSet, Hashable, Sendable {
        /// The flags as bits.
        public let rawValue: UInt8
        /// Faults from their bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// Because of the battery.
        public static let battery = Self(rawValue: 1 << 0)
        /// Because of the power source.
        public static let externalPower = Self(rawValue: 1 << 1)
        /// For another reason.
        public static let other = Self(rawValue: 1 << 2)
    }

    /// What else is to say of a battery. BluezKit addition.
    public struct AdditionalStatus: FieldValue, Hashable {
        /// It needs a service.
        @Assigned public var serviceRequired: ServiceRequired? = .unknown
        /// It has a fault.
        public var hasFault = false
        /// Nothing.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.packed(name, bytes: 1) { bits in
                bits.field(&_serviceRequired, bits: 2)
                bits.flag(&hasFault)
            }
        }
    }

    /// Whether a battery needs a service. BluezKit addition.
    public enum ServiceRequired: UInt8, EnumeratedValue {
        /// The answer.
        case no, yes, unknown
        /// Unknown.
        public init() { self = .unknown }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        var faults = chargingFaults.rawValue
        try fields.packed("power state", bytes: 2) { bits in
            bits.flag(&isPresent)
            bits.field(&_wiredPower, bits: 2)
            bits.field(&_wirelessPower, bits: 2)
            bits.field(&_chargeState, bits: 2)
            bits.field(&_chargeLevel, bits: 2)
            bits.field(&_chargingType, bits: 3)
            bits.number(&faults, bits: 3)
        }
        chargingFaults = ChargingFaults(rawValue: faults)
        try fields.field("identifier", &identifier, ifBit: 0)
        try fields.field("battery level", &level, ifBit: 1)
        try fields.field("additional status", &additional, ifBit: 2)
    }
}

/// What a battery needs at once, characteristic 2BE9. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.4; GATT Specification Supplement, "Battery Critical Status".
public struct BatteryCriticalStatus: FlagSet, StructuredValue, Hashable {
    /// 2BE9.
    public static let uuid = CBUUID(string: "2BE9")
    /// The flags as bits.
    public let rawValue: UInt8
    /// A status from its bits.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// It is almost empty.
    public static let criticalPowerState = Self(rawValue: 1 << 0)
    /// It needs a service.
    public static let immediateServiceRequired = Self(rawValue: 1 << 1)
    /// All of these.
    public static let assigned = Self(rawValue: 0x03)
}

/// How long a battery lasts, characteristic 2BEE. BluezKit addition.
///
/// Times are in minutes, 24 bits; 16777214: even longer.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.6; GATT Specification Supplement, "Battery Time Status".
public struct BatteryTimeStatus: StructuredValue, Hashable {
    /// 2BEE.
    public static let uuid = CBUUID(string: "2BEE")

    /// Until it is empty; nil: unknown.
    public var untilDischarged: UInt32?
    /// Until it is empty in standby; 16777215: unknown. Nil: not included.
    public var untilDischargedOnStandby: UInt32?
    /// Until it is charged; 16777215: unknown. Nil: not included.
    public var untilRecharged: UInt32?

    /// Unknown.
    public init() {}

    private static let unknown: UInt32 = 0xFF_FFFF

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        var time = untilDischarged ?? Self.unknown
        try fields.field("time until discharged", &time, bytes: 3)
        untilDischarged = time == Self.unknown ? nil : time
        try fields.field("time until discharged on standby", &untilDischargedOnStandby, bytes: 3, ifBit: 0)
        try fields.field("time until recharged", &untilRecharged, bytes: 3, ifBit: 1)
    }
}

/// How much energy a battery has, characteristic 2BF0. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.5; GATT Specification Supplement, "Battery Energy Status".
public struct BatteryEnergyStatus: StructuredValue, Hashable {
    /// 2BF0.
    public static let uuid = CBUUID(string: "2BF0")

    /// What the external power source supplies, in W; nil: not included.
    public var externalSourcePower: MedFloat16?
    /// In V; nil: not included.
    public var voltage: MedFloat16?
    /// What is left, in kWh; nil: not included.
    public var availableEnergy: MedFloat16?
    /// What it has when it is full, in kWh; nil: not included.
    public var availableCapacity: MedFloat16?
    /// In W; negative: it is discharged. Nil: not included.
    public var chargeRate: MedFloat16?
    /// What was left when it was charged last, in kWh; nil: not included.
    public var availableEnergyAtLastCharge: MedFloat16?

    /// Nothing.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        try fields.field("external source power", &externalSourcePower, ifBit: 0)
        try fields.field("present voltage", &voltage, ifBit: 1)
        try fields.field("available energy", &availableEnergy, ifBit: 2)
        try fields.field("available battery capacity", &availableCapacity, ifBit: 3)
        try fields.field("charge rate", &chargeRate, ifBit: 4)
        try fields.field("available energy at last charge", &availableEnergyAtLastCharge, ifBit: 5)
    }
}
