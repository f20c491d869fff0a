/// An event on its way to the app.
struct KeptEvent<Event: Sendable>: Sendable {
    let event: Event
    /// Nil: of the app's own side.
    var number: UInt64?
    /// Where its delivery is noted.
    var page: DeliveryPage?
}

/// Delivers what a keeper sends, and notes how far the app has come.
final class KeptDelivery<Event: Sendable>: Recipient {
    private let receive: @Sendable ([Event]) -> Void

    init(_ receive: @escaping @Sendable ([Event]) -> Void) { self.receive = receive }

    func deliver(_ events: [KeptEvent<Event>]) {
        for event in events {
            if let number = event.number { event.page?.begun = number }
            receive([event.event])
            if let number = event.number { event.page?.delivered = number }
        }
    }

    static func outlivesManager(_ event: KeptEvent<Event>) -> Bool {
        (event.event as? CentralEvent)?.outlivesManager ?? false
    }
}
