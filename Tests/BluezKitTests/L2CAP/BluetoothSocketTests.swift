import CBluezL2CAP
import Foundation
import Testing

@testable import BluezKit

@Suite struct BluetoothSocketTests {
    @Test("addresses of LE devices are converted to and from the kernel's form, and others are refused")
    func addresses() throws {
        let device = DeviceIdentity(address: 0xF0F1_F200_0003, isRandom: true)
        let address = L2CAPAddress(device, psm: 0x80)
        let bytes = withUnsafeBytes(of: address.kernelAddress) { [UInt8]($0) }
        #expect(bytes.prefix(13) == [31, 0, 0x80, 0, 3, 0, 0, 0xF2, 0xF1, 0xF0, 0, 0, 2])
        #expect(L2CAPAddress(address.kernelAddress) == address)
        var other = address.kernelAddress
        other.address_type = 0
        #expect(L2CAPAddress(other) == nil)
        other = address.kernelAddress
        other.family = 1
        #expect(L2CAPAddress(other) == nil)
    }

    @Test("ERR-8 L2-10 every failure of a socket has one translation, which names the cause and the cure")
    func failures() {
        func code(_ step: SocketFailure.Step, _ code: Int32) -> CBError.Code { SocketFailure(step, code).error.code }
        #expect(code(.make, EAFNOSUPPORT) == .operationNotSupported)
        #expect(code(.make, EACCES) == .operationNotSupported)
        #expect(code(.make, EMFILE) == .outOfSpace)
        #expect(code(.listen, EINVAL) == .outOfSpace)
        #expect(code(.connect, EINVAL) == .invalidParameters)
        #expect(code(.connect, ECONNREFUSED) == .connectionFailed)
        #expect(code(.connect, EACCES) == .encryptionTimedOut)
        #expect(code(.connect, ETIMEDOUT) == .connectionTimeout)
        #expect(code(.connect, ECONNRESET) == .notConnected)
        #expect(code(.connect, ENOSYS) == .unknown)
        for row in SocketFailure.rows {
            for step in row.steps {
                for code in row.codes {
                    let error = SocketFailure(step, code).error
                    #expect(error.code == row.result || SocketFailure.rows.first { $0.codes.contains(code) } != nil)
                    let info = (error as NSError).userInfo
                    #expect((info[NSUnderlyingErrorKey] as? NSError)?.code == Int(code))
                    #expect((info[NSLocalizedFailureReasonErrorKey] as? String)?.contains("E") == true)
                    #expect((info[NSLocalizedRecoverySuggestionErrorKey] as? String)?.isEmpty == false)
                }
            }
        }
    }
}
