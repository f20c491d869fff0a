import Testing

@testable import BluezKit

@Suite struct CBErrorTests {
    @Test("ERR-2 O-46 an error can be cast, compared and bridged")
    func forms() {
        let error: any Error = CBError(.peripheralDisconnected)
        #expect(error is CBError)
        #expect((error as? CBError)?.code == .peripheralDisconnected)
        #expect(error as? CBATTError == nil)
        #expect((error as NSError).domain == CBErrorDomain)
        #expect((error as NSError).code == CBError.Code.peripheralDisconnected.rawValue)
        #expect((error as? CBError)?.errorCode == 7)
        #expect(CBError.errorDomain == "CBErrorDomain")
        #expect(CBATTError.errorDomain == "CBATTErrorDomain")
        #expect(CBError(.notConnected, userInfo: ["key": 1]).userInfo["key"] as? Int == 1)
        #expect(CBError(.notConnected, userInfo: ["key": 1]).errorUserInfo["key"] as? Int == 1)
    }

    @Test("ERR-2 O-46 an error can be caught by its code")
    func caught() {
        func thrown(_ error: any Error) -> String {
            do { throw error } catch CBError.connectionTimeout {
                return "timeout"
            } catch CBATTError.invalidOffset {
                return "offset"
            } catch let error as CBError where error.code == .unknownDevice {
                return "device"
            } catch {
                return "other"
            }
        }
        #expect(thrown(CBError(.connectionTimeout)) == "timeout")
        #expect(thrown(CBATTError(.invalidOffset)) == "offset")
        #expect(thrown(CBError(.unkownDevice)) == "device")
        #expect(thrown(CBError(.unknown)) == "other")
        #expect(thrown(CBATTError(.invalidHandle)) == "other")
    }

    @Test("ERR-2 errors are equal and hash by code and user info")
    func equality() {
        #expect(CBError(.notConnected) == CBError(.notConnected))
        #expect(CBError(.notConnected) != CBError(.unknown))
        #expect(CBError(.notConnected) != CBError(.notConnected, userInfo: ["key": 1]))
        #expect(Set([CBError(.notConnected), CBError(.notConnected), CBError(.unknown)]).count == 2)
        #expect(CBError(.notConnected).hashValue == CBError(.notConnected).hashValue)
        #expect(CBATTError(.invalidPdu).hashValue == CBATTError(.invalidPdu).hashValue)
        #expect(Set([CBATTError(.invalidPdu), CBATTError(.invalidPdu)]).count == 1)
    }

    @Test("ERR-2 an NSError can be wrapped, and a code without a case is unknown")
    func wrapping() {
        let wrapped = CBError(_nsError: NSError(domain: CBErrorDomain, code: 6))
        #expect(wrapped.code == .connectionTimeout)
        #expect(CBError(_nsError: NSError(domain: CBErrorDomain, code: 1234)).code == .unknown)
        #expect(CBATTError(_nsError: NSError(domain: CBATTErrorDomain, code: 0x80)).code.rawValue == 0x80)
    }

    @Test("ERR-4 codes can be spelt as statics of the error, too")
    func statics() {
        let codes: [CBATTError.Code] = [.success, .invalidOffset, CBATTError.invalidOffset, CBATTError.success]
        #expect(codes.map(\.rawValue) == [0, 7, 7, 0])
    }

    @Test("ERR-5 every error has an English description")
    func descriptions() {
        #expect(CBError(.unknown).localizedDescription == "Unknown error.")
        #expect(CBError(.connectionTimeout).localizedDescription == "The connection has timed out unexpectedly.")
        let disconnected: any Error = CBError(.peripheralDisconnected)
        #expect(disconnected.localizedDescription == "The specified device has disconnected from us.")
        #expect((disconnected as NSError).localizedDescription == "The specified device has disconnected from us.")
        #expect(CBError(.peerRemovedPairingInformation).localizedDescription == "Peer removed pairing information")
        #expect(CBATTError(.readNotPermitted).localizedDescription == "Reading is not permitted.")
        #expect(CBATTError(.insufficientEncryption).localizedDescription == "Encryption is insufficient.")
        #expect(CBATTError(attCode(0x85)).localizedDescription == "Unknown ATT error.")
        let own = CBError(.unknown, userInfo: [NSLocalizedDescriptionKey: "own"])
        #expect(own.localizedDescription == "own")
        for code in 0...18 {
            #expect(CBError.Code(rawValue: code).map { !CBError($0).localizedDescription.isEmpty } == true)
        }
    }

    @Test("ERR-6 MOD-13 every number is an ATT code", arguments: [0x12, 0x80, 0x9F, 0xE0, 0xFF, 0x1234])
    func openCodes(number: Int) {
        let code = CBATTError.Code(rawValue: number)
        #expect(code?.rawValue == number)
        let error: any Error = CBATTError(attCode(number))
        #expect((error as? CBATTError)?.code == code)
        #expect((error as NSError).code == number)
        #expect(CBATTError.Code(rawValue: 0x80)! == attCode(0x80))
        #expect(CBATTError.Code(rawValue: 0x80)! != attCode(0x81))
    }

    @Test("ERR-6 MOD-13 ATT codes can be switched over with every case and an unknown default")
    func exhaustive() {
        func name(_ code: CBATTError.Code) -> String {
            switch code {
            case .success: "success"
            case .invalidHandle, .readNotPermitted, .writeNotPermitted, .invalidPdu: "1...4"
            case .insufficientAuthentication, .requestNotSupported, .invalidOffset: "5...7"
            case .insufficientAuthorization, .prepareQueueFull, .attributeNotFound, .attributeNotLong: "8...B"
            case .insufficientEncryptionKeySize, .invalidAttributeValueLength, .unlikelyError: "C...E"
            case .insufficientEncryption, .unsupportedGroupType, .insufficientResources: "F...11"
            @unknown default: "other"
            }
        }
        #expect(name(.success) == "success")
        #expect(name(.insufficientResources) == "F...11")
        #expect(name(attCode(0x80)) == "other")
    }

    @Test("ERR-7 the misspelt error code and its alias are equal")
    func alias() {
        #expect(CBError.Code.unknownDevice == .unkownDevice)
        #expect(CBError.unknownDevice.rawValue == 12)
    }

    @Test("CBError codes have Apple's numbers")
    func numbers() {
        let codes: [CBError.Code] = [
            .unknown, .invalidParameters, .invalidHandle, .notConnected, .outOfSpace, .operationCancelled,
            .connectionTimeout, .peripheralDisconnected, .uuidNotAllowed, .alreadyAdvertising, .connectionFailed,
            .connectionLimitReached, .unknownDevice, .operationNotSupported, .peerRemovedPairingInformation,
            .encryptionTimedOut, .tooManyLEPairedDevices, .leGattExceededBackgroundNotificationLimit,
            .leGattNearBackgroundNotificationLimit,
        ]
        #expect(codes.map(\.rawValue) == Array(0...18))
        let attributeCodes: [CBATTError.Code] = [
            .success, .invalidHandle, .readNotPermitted, .writeNotPermitted, .invalidPdu, .insufficientAuthentication,
            .requestNotSupported, .invalidOffset, .insufficientAuthorization, .prepareQueueFull, .attributeNotFound,
            .attributeNotLong, .insufficientEncryptionKeySize, .invalidAttributeValueLength, .unlikelyError,
            .insufficientEncryption, .unsupportedGroupType, .insufficientResources,
        ]
        #expect(attributeCodes.map(\.rawValue) == Array(0...0x11))
    }

    private func attCode(_ number: Int) -> CBATTError.Code { CBATTError.Code(rawValue: number)! }
}
