// The one type that Swift alone cannot declare as CoreBluetooth has it: an *open* enum.
//
// Applications receive and send ATT codes that Apple's header does not name (0x80 to 0x9F, 0xE0 to 0xFF):
// `CBATTError.Code(rawValue: 0x80)!` works on Apple platforms because the enum is imported from C. A Swift enum
// would return nil there; a struct would break `switch … @unknown default`.
#ifndef CCOREBLUETOOTH_H
#define CCOREBLUETOOTH_H

/// ATT error codes: Core Specification 5.4, Vol 3, Part F, 3.4.1.1. Spelled `CBATTError.Code` in Swift.
typedef enum __attribute__((enum_extensibility(open))) CBATTErrorCode : long {
    CBATTErrorCodeSuccess = 0x00,
    CBATTErrorCodeInvalidHandle = 0x01,
    CBATTErrorCodeReadNotPermitted = 0x02,
    CBATTErrorCodeWriteNotPermitted = 0x03,
    CBATTErrorCodeInvalidPdu = 0x04,
    CBATTErrorCodeInsufficientAuthentication = 0x05,
    CBATTErrorCodeRequestNotSupported = 0x06,
    CBATTErrorCodeInvalidOffset = 0x07,
    CBATTErrorCodeInsufficientAuthorization = 0x08,
    CBATTErrorCodePrepareQueueFull = 0x09,
    CBATTErrorCodeAttributeNotFound = 0x0A,
    CBATTErrorCodeAttributeNotLong = 0x0B,
    CBATTErrorCodeInsufficientEncryptionKeySize = 0x0C,
    CBATTErrorCodeInvalidAttributeValueLength = 0x0D,
    CBATTErrorCodeUnlikelyError = 0x0E,
    CBATTErrorCodeInsufficientEncryption = 0x0F,
    CBATTErrorCodeUnsupportedGroupType = 0x10,
    CBATTErrorCodeInsufficientResources = 0x11,
} CBATTErrorCode;

#endif
