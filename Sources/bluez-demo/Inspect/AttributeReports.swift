import BluezKit
import Foundation

/// The attributes of a device, in the order of its table, with the values read so far.
struct AttributeReports {
    private(set) var all: [AttributeReport] = []
    /// The readable attributes, and their positions in `all`.
    private var readable: [(attribute: CBAttribute, place: Int)] = []

    /// Nothing has been read yet.
    init(_ services: [CBService] = []) {
        var shown = Set<ObjectIdentifier>()
        var rest = services[...]
        // Services that are only included follow those.
        while let service = rest.popFirst() {
            guard shown.insert(ObjectIdentifier(service)).inserted else { continue }
            add(service)
            rest += service.includedServices ?? []
        }
    }

    private mutating func add(_ service: CBService) {
        all.append(report(service, .service, depth: 0, isPrimary: service.isPrimary))
        for included in service.includedServices ?? [] { all.append(report(included, .includedService, depth: 1)) }
        for characteristic in service.characteristics ?? [] {
            if characteristic.properties.contains(.read) { readable.append((characteristic, all.count)) }
            all.append(report(characteristic, .characteristic, depth: 1, properties: characteristic.properties.names))
            for descriptor in characteristic.descriptors ?? [] {
                readable.append((descriptor, all.count))
                all.append(report(descriptor, .descriptor, depth: 2))
            }
        }
    }

    private func report(
        _ attribute: CBAttribute, _ kind: AttributeReport.Kind, depth: Int, isPrimary: Bool? = nil,
        properties: [String]? = nil
    ) -> AttributeReport {
        AttributeReport(
            kind: kind, uuid: attribute.uuid.uuidString, name: attribute.uuid.assignedName, depth: depth,
            isPrimary: isPrimary, properties: properties)
    }

    // MARK: Values

    /// The next attribute to read; nil: none left.
    var unread: CBAttribute? { readable.first { all[$0.place].value == nil }?.attribute }

    /// An attribute was read; nil: its value has an unsupported type.
    mutating func update(_ value: AttributeReport.Value?, of attribute: CBAttribute) {
        guard let place = readable.first(where: { $0.attribute === attribute })?.place else { return }
        all[place].value = value ?? .failed("of an unknown type")
    }

    /// Nothing more is read.
    mutating func giveUp(_ reason: String) {
        for (_, place) in readable where all[place].value == nil { all[place].value = .failed(reason) }
    }

    /// Takes the values that were read on an earlier link, if the table is unchanged.
    mutating func takeValues(from earlier: AttributeReports) {
        func table(_ reports: AttributeReports) -> [AttributeReport] {
            reports.all.map { report in
                var report = report
                report.value = nil
                return report
            }
        }
        if table(self) == table(earlier) { all = earlier.all }
    }
}

extension AttributeReport.Value {
    init?(_ value: Any?) {
        switch value {
        case let text as String: self = .text(text)
        case let number as NSNumber: self = .number(number.intValue)
        case let data as Data: self = .bytes([UInt8](data))
        default: return nil
        }
    }
}
