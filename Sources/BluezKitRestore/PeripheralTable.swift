package import Foundation

/// Records by identifier, in the order of the app's calls. Adding, replacing and removing one takes constant time.
/// Encoded as an array.
package struct PeripheralTable: Sequence, Codable, Equatable, Sendable, ExpressibleByArrayLiteral {
    /// Nil where a record was removed.
    private var slots: [Snapshot.Peripheral?] = []
    private var places: [UUID: Int] = [:]

    package init(_ records: some Sequence<Snapshot.Peripheral>) {
        for record in records { self[record.identifier] = record }
    }

    package init(arrayLiteral records: Snapshot.Peripheral...) { self.init(records) }

    package var isEmpty: Bool { places.isEmpty }
    package var count: Int { places.count }

    package subscript(identifier: UUID) -> Snapshot.Peripheral? {
        get { places[identifier].flatMap { slots[$0] } }
        set {
            if let place = places[identifier] {
                slots[place] = newValue
                guard newValue == nil else { return }
                places[identifier] = nil
                if slots.count > 2 * places.count + 16 { self = PeripheralTable(self) }
            } else if let newValue {
                places[identifier] = slots.count
                slots.append(newValue)
            }
        }
    }

    /// - Returns: Whether this changed anything.
    mutating func replace(_ service: Snapshot.Service, of identifier: UUID) -> Bool {
        guard let place = places[identifier],
            let index = slots[place]?.services?.firstIndex(where: { $0.element == service.element }),
            slots[place]?.services?[index] != service
        else { return false }
        slots[place]?.services?[index] = service
        return true
    }

    /// - Returns: Whether this changed anything.
    mutating func replace(
        _ characteristic: Snapshot.Characteristic, in service: PathElement, of identifier: UUID
    ) -> Bool {
        guard let place = places[identifier],
            let outer = slots[place]?.services?.firstIndex(where: { $0.element == service }),
            let inner = slots[place]?.services?[outer].characteristics?
                .firstIndex(where: { $0.element == characteristic.element }),
            slots[place]?.services?[outer].characteristics?[inner] != characteristic
        else { return false }
        slots[place]?.services?[outer].characteristics?[inner] = characteristic
        return true
    }

    package func makeIterator() -> some IteratorProtocol<Snapshot.Peripheral> {
        slots.lazy.compactMap { $0 }.makeIterator()
    }

    package static func == (a: Self, b: Self) -> Bool { a.elementsEqual(b) }

    package init(from decoder: any Decoder) throws { self.init(try [Snapshot.Peripheral](from: decoder)) }

    package func encode(to encoder: any Encoder) throws { try Array(self).encode(to: encoder) }
}
