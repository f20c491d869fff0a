import Testing

@testable import BluezKit

@Suite struct ConstantsTests {
    @Test("option and dictionary keys have Apple's runtime values")
    func keys() {
        let keys = [
            CBCentralManagerOptionShowPowerAlertKey: "kCBInitOptionShowPowerAlert",
            CBCentralManagerOptionRestoreIdentifierKey: "kCBInitOptionRestoreIdentifier",
            CBCentralManagerScanOptionAllowDuplicatesKey: "kCBScanOptionAllowDuplicates",
            CBCentralManagerScanOptionSolicitedServiceUUIDsKey: "kCBScanOptionSolicitedServiceUUIDs",
            CBConnectPeripheralOptionNotifyOnConnectionKey: "kCBConnectOptionNotifyOnConnection",
            CBConnectPeripheralOptionNotifyOnDisconnectionKey: "kCBConnectOptionNotifyOnDisconnection",
            CBConnectPeripheralOptionNotifyOnNotificationKey: "kCBConnectOptionNotifyOnNotification",
            CBConnectPeripheralOptionStartDelayKey: "kCBConnectOptionStartDelay",
            CBConnectPeripheralOptionEnableTransportBridgingKey: "kCBConnectOptionEnableTransportBridging",
            CBConnectPeripheralOptionRequiresANCS: "kCBConnectOptionRequiresANCS",
            CBConnectPeripheralOptionEnableAutoReconnect: "kCBConnectOptionEnableAutoReconnect",
            CBAdvertisementDataLocalNameKey: "kCBAdvDataLocalName",
            CBAdvertisementDataServiceUUIDsKey: "kCBAdvDataServiceUUIDs",
            CBAdvertisementDataManufacturerDataKey: "kCBAdvDataManufacturerData",
            CBAdvertisementDataServiceDataKey: "kCBAdvDataServiceData",
            CBAdvertisementDataTxPowerLevelKey: "kCBAdvDataTxPowerLevel",
            CBAdvertisementDataOverflowServiceUUIDsKey: "kCBAdvDataHashedServiceUUIDs",
            CBAdvertisementDataSolicitedServiceUUIDsKey: "kCBAdvDataSolicitedServiceUUIDs",
            CBAdvertisementDataIsConnectable: "kCBAdvDataIsConnectable",
            CBCentralManagerRestoredStatePeripheralsKey: "kCBRestoredPeripherals",
            CBCentralManagerRestoredStateScanServicesKey: "kCBRestoredScanServices",
            CBCentralManagerRestoredStateScanOptionsKey: "kCBRestoredScanOptions",
            CBPeripheralManagerRestoredStateServicesKey: "kCBRestoredServices",
            CBPeripheralManagerRestoredStateAdvertisementDataKey: "kCBRestoredAdvertisement",
            CBErrorDomain: "CBErrorDomain",
            CBATTErrorDomain: "CBATTErrorDomain",
        ]
        for (key, value) in keys { #expect(key == value) }
        #expect(
            CBConnectionEventMatchingOption.serviceUUIDs.rawValue == "kCBConnectionEventMatchingOptionServiceUUIDs")
        #expect(
            CBConnectionEventMatchingOption.peripheralUUIDs.rawValue
                == "kCBConnectionEventMatchingOptionPeripheralUUIDs")
    }

    @Test("descriptor constants have the SIG's numbers")
    func descriptors() {
        let constants = [
            CBUUIDCharacteristicExtendedPropertiesString, CBUUIDCharacteristicUserDescriptionString,
            CBUUIDClientCharacteristicConfigurationString, CBUUIDServerCharacteristicConfigurationString,
            CBUUIDCharacteristicFormatString, CBUUIDCharacteristicAggregateFormatString,
            CBUUIDCharacteristicValidRangeString,
        ]
        #expect(constants == ["2900", "2901", "2902", "2903", "2904", "2905", "2906"])
        #expect(CBUUIDL2CAPPSMCharacteristicString == "ABDD3056-28FA-441D-A470-55A75A52553A")
    }

    @Test("ST-2 MOD-13 enums have Apple's raw values")
    func rawValues() {
        let states: [CBManagerState] = [.unknown, .resetting, .unsupported, .unauthorized, .poweredOff, .poweredOn]
        #expect(states.map(\.rawValue) == [0, 1, 2, 3, 4, 5])
        let authorizations: [CBManagerAuthorization] = [.notDetermined, .restricted, .denied, .allowedAlways]
        #expect(authorizations.map(\.rawValue) == [0, 1, 2, 3])
        let links: [CBPeripheralState] = [.disconnected, .connecting, .connected, .disconnecting]
        #expect(links.map(\.rawValue) == [0, 1, 2, 3])
        #expect([CBConnectionEvent.peerDisconnected, .peerConnected].map(\.rawValue) == [0, 1])
        #expect([CBCharacteristicWriteType.withResponse, .withoutResponse].map(\.rawValue) == [0, 1])
        let latencies: [CBPeripheralManagerConnectionLatency] = [.low, .medium, .high]
        #expect(latencies.map(\.rawValue) == [0, 1, 2])
    }

    @Test("option sets have Apple's bits")
    func bits() {
        let properties: [CBCharacteristicProperties] = [
            .broadcast, .read, .writeWithoutResponse, .write, .notify, .indicate, .authenticatedSignedWrites,
            .extendedProperties, .notifyEncryptionRequired, .indicateEncryptionRequired,
        ]
        #expect(properties.map(\.rawValue) == (0..<10).map { 1 << $0 })
        let permissions: [CBAttributePermissions] = [
            .readable, .writeable, .readEncryptionRequired, .writeEncryptionRequired,
        ]
        #expect(permissions.map(\.rawValue) == [1, 2, 4, 8])
        #expect(CBCentralManager.Feature.extendedScanAndConnect.rawValue == 1)
    }

    @Test("MOD-2 CFAbsoluteTime counts seconds since the start of 2001")
    func absoluteTime() {
        let before = Date().timeIntervalSinceReferenceDate
        let now: CFAbsoluteTime = CFAbsoluteTimeGetCurrent()
        let interval: CFTimeInterval = Date().timeIntervalSinceReferenceDate - now
        #expect(now >= before && interval >= 0 && interval < 60)
    }
}
