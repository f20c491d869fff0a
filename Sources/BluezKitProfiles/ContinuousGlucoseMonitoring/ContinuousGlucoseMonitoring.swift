public import BluezKit

/// The Continuous Glucose Monitoring service, 181F. BluezKit addition.
///
/// The record access control point is that of ``Glucose``, with the time offset in place of the sequence number:
/// `RecordStore(sequenceNumber: \CGMMeasurement.Record.timeOffset)`.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2.
public enum ContinuousGlucoseMonitoring: ServiceProfile {
    /// 181F.
    public static let uuid = CBUUID(string: "181F")
    /// All characteristics are mandatory.
    public static let characteristics = [
        ProfileCharacteristic(CGMMeasurement.self, .notify),
        ProfileCharacteristic(CGMFeature.self, .read),
        ProfileCharacteristic(CGMStatus.self, .read),
        ProfileCharacteristic(CGMSessionStartTime.self, [.read, .write]),
        ProfileCharacteristic(CGMSessionRunTime.self, .read),
        ProfileCharacteristic(RecordAccessControlPoint.self, [.write, .indicate]),
        ProfileCharacteristic(CGMSpecificOpsControlPoint.self, [.write, .indicate]),
    ]

    /// A server's answer to a write that is not secured, if it is with ``CGMFeature/Features/e2eCRC``: the application
    /// error 0x80.
    public static var missingCRC: CBATTError.Code {
        // `!`: an enum that is imported from C takes every number.
        CBATTError.Code(rawValue: 0x80)!
    }

    /// A server's answer to a write with a wrong checksum: the application error 0x81.
    public static var invalidCRC: CBATTError.Code {
        // `!`: an enum that is imported from C takes every number.
        CBATTError.Code(rawValue: 0x81)!
    }
}

/// The server side of ``ContinuousGlucoseMonitoring``. BluezKit addition.
public typealias ContinuousGlucoseMonitoringService = ProfileService<ContinuousGlucoseMonitoring>
