import Testing

@testable import BluezKit

@Suite struct BlueZVersionTests {
    @Test(
        "the version is that of the adapter's Modalias, unless main.conf has another DeviceID",
        arguments: [
            ("usb:v1D6Bp0246d0542", BlueZVersion(5, 66)), ("usb:v1D6Bp0246d0557", BlueZVersion(5, 87)),
            ("usb:v1D6Bp0246d0600", BlueZVersion(6, 0)), ("usb:v1D6Bp0246d05420", nil), ("usb:v1D6Bp0246d-542", nil),
            ("bluetooth:v1D6Bp0246d0542", nil), ("usb:v1D6Bp0247d0542", nil), ("", nil),
        ])
    func modalias(_ text: String, _ version: BlueZVersion?) {
        #expect(BlueZVersion(modalias: text) == version)
    }

    @Test("versions of BlueZ are compared by number")
    func order() {
        #expect(BlueZVersion(5, 66) < BlueZVersion(5, 100))
        #expect(BlueZVersion(5, 100) < BlueZVersion(6, 0))
        #expect("\(BlueZVersion(5, 66))" == "5.66")
    }

    @Test("if a daemon hides its version, Connectable shows whether it is 5.79 or later")
    func hidden() {
        #expect(!BlueZDaemon().givesSubscriberSockets && BlueZDaemon().losesServices)
        let later = BlueZDaemon(hasConnectable: true)
        #expect(later.givesSubscriberSockets && !later.tellsConfirmations && !later.losesServices)
        #expect(later.refusesSecondConnect && !BlueZDaemon().refusesSecondConnect)
        #expect(!BlueZDaemon(version: BlueZVersion(5, 75), hasConnectable: true).givesSubscriberSockets)
    }

    @Test("what is decided by the version changes with the right one")
    func decisions() {
        func versions(_ decision: (BlueZDaemon) -> Bool) -> [Int] {
            (62...99).filter { decision(BlueZDaemon(version: BlueZVersion(5, $0))) }
        }
        #expect(versions(\.givesSubscriberSockets) == Array(76...99))
        #expect(versions(\.showsAdvertisingFlags) == Array(78...99))
        #expect(versions(\.tellsConfirmations) == Array(80...99))
        #expect(versions(\.refusesSecondConnect) == Array(81...99))
        #expect(versions(\.crashesOnFilters) == [87])
        #expect(versions(\.losesServices) == Array(62...68))
    }
}
