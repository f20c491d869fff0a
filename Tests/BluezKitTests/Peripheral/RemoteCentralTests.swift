import BluezDBus
import Testing

@testable import BluezKit

@Suite struct RemoteCentralTests {
    private let path: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"

    @Test("requests of a central wait in order until its address is known, and then see the last MTU")
    func introduction() {
        let central = RemoteCentral(path)
        var (order, lengths): ([Int], [Int]) = ([], [])
        central.setMTU(50)
        for number in 0..<2 {
            central.perform { found in
                order.append(number)
                lengths.append(found.maximumUpdateValueLength)
            }
        }
        central.setMTU(100)
        #expect(order.isEmpty && central.central == nil)
        central.introduce(DeviceProperties())
        central.perform { _ in order.append(2) }
        #expect(order == [0, 1, 2] && lengths == [97, 97])
        central.setMTU(23)
        #expect(central.central?.maximumUpdateValueLength == 20)
    }

    @Test("a device that BlueZ says nothing about is known by its path, and is not bonded")
    func unknown() {
        let central = RemoteCentral(path)
        central.introduce(DeviceProperties())
        let identity = DeviceIdentity(address: "F0:00:00:00:00:01", isRandom: true)
        #expect(central.central?.identifier == identity?.identifier && identity != nil)
        #expect(!central.isBonded)
    }
}
