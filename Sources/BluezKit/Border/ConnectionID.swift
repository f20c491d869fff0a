/// Which connect or cancel of a manager's app, and which of its links where it reconnects automatically. What belongs
/// to an earlier one is neither carried out nor delivered.
struct ConnectionID: Hashable, Codable, Sendable {
    /// Counts the connects and cancels of a manager, from 1.
    let request: UInt32
    /// Counts the links of one connect that reconnects automatically, from 0.
    private(set) var link: UInt32 = 0

    init(request: UInt32, link: UInt32 = 0) { (self.request, self.link) = (request, link) }

    /// Nothing was asked for.
    static let none = ConnectionID(request: 0)

    /// That of the link that follows this one.
    var next: ConnectionID {
        var next = self
        next.link &+= 1
        return next
    }
}
