import BluezDBus
import Testing

@testable import BluezKit

@Suite struct SubscriptionTableTests {
    private let role = DetachedCentral().role
    private let table = SubscriptionTable()

    private func client(_ number: Int) -> GATTClient { GATTClient(of: DetachedCentral.device(number), in: role) }

    private func subscription(_ client: GATTClient, _ path: ObjectPath) -> Subscription {
        Subscription(client, path: path, version: 0)
    }

    @Test("a subscription is found by its path, as text and as it is in a message, until it is replaced or removed")
    func finds() {
        let client = client(1)
        let (one, two) = (subscription(client, "/a"), subscription(client, "/a"))
        table["/a"] = one
        #expect(table["/a"] === one && table["/b"] == nil && table["/"] == nil && table["/a/b"] == nil)
        "/a".withCString { (path: UnsafePointer<CChar>) in #expect(table[path] === one) }
        "/a/b".withCString { (path: UnsafePointer<CChar>) in #expect(table[path] == nil) }
        table["/a"] = two
        #expect(table["/a"] === two && table.all(of: client).count == 1)
        table["/a"] = nil
        #expect(table["/a"] == nil && table.all(of: client).isEmpty)
    }

    @Test("the subscriptions of a link are those of its client, not of its device")
    func clients() {
        let (old, new, other) = (client(1), client(1), client(2))
        for (path, client) in [("/a", old), ("/b", new), ("/c", new), ("/d", other)] {
            table[path] = subscription(client, ObjectPath(path) ?? "/")
        }
        #expect(table.all(of: old).map(\.path.rawValue) == ["/a"])
        #expect(Set(table.all(of: new).map(\.path.rawValue)) == ["/b", "/c"])
        table.removeAll()
        for client in [old, new, other] { #expect(table.all(of: client).isEmpty) }
    }
}
