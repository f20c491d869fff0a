// The ways in which apps take errors apart, and make them.
import CoreBluetooth

func describe(_ error: Error?) -> String {
    guard let error else { return "none" }
    if let error = error as? CBError {
        switch error.code {
        case .unknown, .invalidParameters, .invalidHandle, .notConnected, .outOfSpace, .operationCancelled: return "a"
        case .connectionTimeout, .peripheralDisconnected, .uuidNotAllowed, .alreadyAdvertising: return "b"
        case .connectionFailed, .connectionLimitReached, .unknownDevice, .operationNotSupported: return "c"
        case .peerRemovedPairingInformation, .encryptionTimedOut, .tooManyLEPairedDevices: return "d"
        default: return "e"
        }
    }
    if let code = (error as? CBATTError)?.code {
        switch code {
        case .success, .invalidHandle, .readNotPermitted, .writeNotPermitted, .invalidPdu: return "f"
        case .insufficientAuthentication, .requestNotSupported, .invalidOffset, .insufficientAuthorization: return "g"
        case .prepareQueueFull, .attributeNotFound, .attributeNotLong, .insufficientEncryptionKeySize: return "h"
        case .invalidAttributeValueLength, .unlikelyError, .insufficientEncryption, .unsupportedGroupType: return "i"
        case .insufficientResources: return "j"
        @unknown default: return String(format: "0x%02X", code.rawValue)
        }
    }
    let bridged = error as NSError
    switch (bridged.domain, bridged.code) {
    case (CBErrorDomain, CBError.Code.connectionTimeout.rawValue): return "timeout"
    case (CBErrorDomain, CBError.peripheralDisconnected.rawValue): return "disconnected"
    case (CBATTErrorDomain, CBATTError.insufficientEncryption.rawValue): return "pair"
    case (CBATTError.errorDomain, _), (CBError.errorDomain, _): return bridged.localizedDescription
    default: return "\(bridged.domain) \(bridged.code) \(bridged.userInfo)"
    }
}

func throwing(_ step: Int) throws {
    switch step {
    case 0: throw CBError(.connectionFailed)
    case 1: throw CBError(CBError.Code.unknown, userInfo: [NSLocalizedDescriptionKey: "unknown"])
    case 2: throw CBATTError(.invalidOffset)
    case 3: throw CBATTError(CBATTError.Code(rawValue: 0x81)!, userInfo: [:])
    case 4: throw CBError(_nsError: NSError(domain: CBErrorDomain, code: CBError.notConnected.rawValue))
    case 5: throw CBATTError(_nsError: NSError(domain: CBATTErrorDomain, code: 0x0F, userInfo: nil))
    default: throw NSError(domain: CBErrorDomain, code: 7, userInfo: nil)
    }
}

func catching() -> String {
    do { try throwing(0) } catch CBError.connectionTimeout { return "timeout" } catch CBATTError.invalidOffset {
        return "offset"
    } catch let error as CBError where error.code == .connectionFailed {
        return "failed \(error.errorCode) \(error.errorUserInfo.count) \(error.userInfo.count) \(error.hashValue)"
    } catch let error as CBATTError {
        return "att \(error.code.rawValue) \(error == CBATTError(.unlikelyError))"
    } catch {
        return describe(error)
    }
    let result: Result<CBPeripheral, CBError> = .failure(CBError(.operationCancelled))
    if case .failure(let error) = result, error.code == .operationCancelled { return "cancelled" }
    let codes: Set<CBError.Code> = [.connectionTimeout, .encryptionTimedOut]
    return codes.contains(.connectionTimeout) && CBError.Code(rawValue: 6) == .connectionTimeout ? "retry" : ""
}
