import Testing

@testable import BluezKit

@Suite struct SubscriberBookTests {
    private typealias Book = SubscriberBook<String>

    @Test("UP-7 each central is listed once, and removed individually, with the last subscription, or with its link")
    func lists() {
        var book = Book()
        #expect(book.subscribed("A") == [.subscribed("A")])
        #expect(book.subscribed("B") == [.subscribed("B")])
        #expect(book.subscribers == ["A", "B"])
        #expect(book.unsubscribed("A") == [.unsubscribed("A")])
        #expect(book.unsubscribed("A") == [])
        #expect(book.disconnected("B", isBonded: false) == [.unsubscribed("B")])
        #expect(book.connected("B") == [])
        _ = book.subscribed("A")
        _ = book.subscribed("C")
        #expect(book.allUnsubscribed() == [.unsubscribed("A"), .unsubscribed("C")])
        #expect(book.subscribers.isEmpty)
    }

    @Test("a central that subscribes again had unsubscribed unnoticed")
    func missedEnd() {
        var book = Book()
        _ = book.subscribed("A")
        #expect(book.subscribed("A") == [.unsubscribed("A"), .subscribed("A")])
        #expect(book.subscribers == ["A"])
    }

    @Test("UP-7 when Bluetooth goes off, bonded centrals are away, whether their links have ended before or not")
    func off() {
        var book = Book()
        for central in ["A", "B", "C"] { _ = book.subscribed(central) }
        _ = book.disconnected("A", isBonded: true)
        book.forget { $0 != "C" }
        #expect(book.subscribers == [] && book.away == ["A", "B"])
        #expect(book.connected("B") == [.subscribed("B")] && book.connected("C") == [])
        book.forget { _ in false }
        #expect(book.subscribers == [] && book.away == [])
    }

    @Test("a bonded central is subscribed again with its next link")
    func bonded() {
        var book = Book()
        _ = book.subscribed("A")
        #expect(book.disconnected("A", isBonded: true) == [.unsubscribed("A")])
        #expect(book.away == ["A"])
        #expect(book.connected("A") == [.subscribed("A")])
        #expect(book.away.isEmpty)
        #expect(book.connected("A") == [])
        // Its bond is removed while it is away: BlueZ keeps nothing then.
        _ = book.disconnected("A", isBonded: true)
        #expect(book.disconnected("A", isBonded: false) == [])
        #expect(book.away.isEmpty && book.connected("A") == [])
        // A central that was not subscribed is not remembered.
        #expect(book.disconnected("B", isBonded: true) == [])
        #expect(book.connected("B") == [])
    }
}
