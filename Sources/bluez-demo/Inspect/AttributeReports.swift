import BluezKit
import Foundation

/// The attributes of a device, in the order of its table, with the values that were read.
struct AttributeReports {
    private(set) var all: [AttributeReport] = []
    private let failures: [ObjectIdentifier: String]

    /// - Parameter failures: Why attributes could not be read.
    init(_ services: [CBService], failures: [ObjectIdentifier: String]) {
        self.failures = failures
        var shown = Set<ObjectIdentifier>()
        var rest = services[...]
        // Services that only others include come after those.
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
            var read = characteristic.value.map { AttributeReport.Value.bytes([UInt8]($0)) }
            if let failure = failures[ObjectIdentifier(characteristic)] { read = .failed(failure) }
            all.append(
                report(
                    characteristic, .characteristic, depth: 1, properties: characteristic.properties.names, value: read
                ))
            for descriptor in characteristic.descriptors ?? [] {
                all.append(report(descriptor, .descriptor, depth: 2, value: value(of: descriptor)))
            }
        }
    }

    private func report(
        _ attribute: CBAttribute, _ kind: AttributeReport.Kind, depth: Int, isPrimary: Bool? = nil,
        properties: [String]? = nil, value: AttributeReport.Value? = nil
    ) -> AttributeReport {
        AttributeReport(
            kind: kind, uuid: attribute.uuid.uuidString, name: attribute.uuid.assignedName, depth: depth,
            isPrimary: isPrimary, properties: properties, value: value)
    }

    private func value(of descriptor: CBDescriptor) -> AttributeReport.Value? {
        if let failure = failures[ObjectIdentifier(descriptor)] { return .failed(failure) }
        switch descriptor.value {
        case let text as String: return .text(text)
        case let number as NSNumber: return .number(number.intValue)
        case let data as Data: return .bytes([UInt8](data))
        default: return nil
        }
    }
}
