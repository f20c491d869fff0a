import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct AttributeTreeTests {
    private static let device = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    private let uuid = CBUUID(string: "2A37")

    private func path(_ text: String) -> ObjectPath { ObjectPath(Self.device + text) ?? "/" }

    /// One service, with `count` characteristics of one descriptor each.
    private func tree(_ count: Int) -> AttributeTree {
        var tree = AttributeTree()
        tree.insert(AttributeTree.Service(path: path("/service0001"), uuid: uuid, isPrimary: true))
        for number in 0..<count {
            let hex = String(number + 0x1000, radix: 16)
            tree.insert(
                AttributeTree.Characteristic(path: path("/service0001/char\(hex)"), uuid: uuid, properties: [.read]))
            tree.insert(AttributeTree.Descriptor(path: path("/service0001/char\(hex)/desc\(hex)"), uuid: uuid))
        }
        return tree
    }

    /// Everything that an app asks of a table, and the end of it.
    private func work(_ count: Int) -> Duration {
        ContinuousClock().measure {
            var tree = tree(count)
            let services = tree.visibleServices()
            var found = 0
            for characteristic in tree.characteristics(of: services[0].path.rawValue, isBonded: false) {
                found += tree.descriptors(of: characteristic.path.rawValue).count
                _ = tree.remove(characteristic.path)
            }
            #expect(found == count && tree.characteristics.isEmpty && tree.descriptors.isEmpty)
        }
    }

    @Test("the work for a table grows with it, not with its square")
    func isLinear() {
        // Sixteen times as much, and something for sorting; the square would be 256 times. A machine that has other
        // things to do disturbs some of the pairs.
        let ratios = (0..<8).map { _ in work(4000) / work(250) }
        #expect(ratios.min() ?? .infinity < 80)
    }

    @Test("GD-3 lists are in table order, and removing an object removes everything below it")
    func removal() {
        var tree = tree(3)
        let service = Self.device + "/service0001"
        #expect(tree.characteristics(of: service).map(\.path.lastElement) == ["char1000", "char1001", "char1002"])
        let gone = tree.remove(path("/service0001/char1001"))
        #expect(gone?.service == service && gone?.characteristics == [service + "/char1001"])
        #expect(tree.descriptors(of: service + "/char1001").isEmpty && tree.descriptors.count == 2)
        #expect(tree.remove(path("/service0001/char1000/desc1000"))?.service == service)
        #expect(!tree.hasCCCD(service + "/char1000"))
        let all = tree.remove(path("/service0001"))
        #expect(all?.service == service && Set(all?.characteristics ?? []).count == 2)
        #expect(tree.services.isEmpty && tree.characteristics.isEmpty && tree.descriptors.isEmpty)
        #expect(tree.remove(path("/service0001")) == nil)
    }

    @Test("GD-9 values from earlier links are withheld while an unbonded peer has Service Changed")
    func serviceChanged() {
        var tree = tree(0)
        let service = Self.device + "/service0001"
        tree.insert(
            AttributeTree.Characteristic(
                path: path("/service0001/char0010"), uuid: uuid, properties: [.read], value: [1]))
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == [1])
        let changed = AttributeTree.Characteristic(
            path: path("/service0001/char0020"), uuid: CBUUID(string: "2A05"), properties: [.indicate])
        for _ in 0..<2 { tree.insert(changed) }  // announced again
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == nil)
        #expect(tree.characteristics(of: service, isBonded: true).first?.value == [1])
        _ = tree.remove(changed.path)
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == [1])
    }

    @Test("the service of an attribute is determined by its path")
    func serviceOfPath() {
        let service = Self.device + "/service0001"
        for below in ["", "/char0002", "/char0002/desc0003"] {
            #expect(AttributeTree.service(of: service + below) == service)
        }
    }
}
