public import BluezKit
import Foundation

/// A request for stored measurements, written with response; or the device's response, indicated: characteristic 2A52.
/// BluezKit addition.
///
/// ```swift
/// peripheral.writeValue(
///     RecordAccessControlPoint(.report, .from(last &+ 1)).data, for: controlPoint, type: .withResponse)
/// ```
/// - SeeAlso: Bluetooth SIG, Glucose Service 1.0, 3.4; GATT Specification Supplement, "Record Access Control Point".
public struct RecordAccessControlPoint: StructuredValue, Hashable {
    /// 2A52.
    public static let uuid = CBUUID(string: "2A52")

    /// What to do with the records. BluezKit addition.
    public struct Operation: RawRepresentable, Hashable, Sendable {
        /// The number.
        public let rawValue: UInt8
        /// Any number: a device answers what it does not know with ``Result/operationNotSupported``.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// Send them by notification.
        public static let report = Self(rawValue: 1)
        /// Delete them.
        public static let delete = Self(rawValue: 2)
        /// End the procedure that is under way.
        public static let abort = Self(rawValue: 3)
        /// Say how many there are.
        public static let count = Self(rawValue: 4)
        /// The response to ``count``: their number.
        public static let countResponse = Self(rawValue: 5)
        /// The response to other requests.
        public static let response = Self(rawValue: 6)
    }

    /// Which records, by their sequence numbers. BluezKit addition.
    public enum Filter: Hashable, Sendable {
        /// All records.
        case all
        /// Those up to a number.
        case upTo(UInt16)
        /// Those from a number on.
        case from(UInt16)
        /// Those between two numbers, both included.
        case within(UInt16, UInt16)
        /// The oldest record, or the newest.
        case first, last
    }

    /// How a device responds. BluezKit addition.
    public enum Result: UInt8, EnumeratedValue {
        /// The response value.
        case success = 1, operationNotSupported, invalidOperator, operatorNotSupported, invalidOperand, noRecordsFound,
            abortUnsuccessful, procedureNotCompleted, operandNotSupported
        /// Not completed.
        public init() { self = .procedureNotCompleted }
    }

    /// What is requested, or the response.
    public private(set) var operation: Operation
    private var operatorNumber: UInt8 = 0
    private var operand = Data()

    /// A request.
    public init(_ operation: Operation, _ filter: Filter) {
        self.operation = operation
        func bySequenceNumber(_ numbers: UInt16...) -> Data {
            var data = Data([1])
            for number in numbers { data.append(number) }
            return data
        }
        switch filter {
        case .all: operatorNumber = 1
        case .upTo(let number): (operatorNumber, operand) = (2, bySequenceNumber(number))
        case .from(let number): (operatorNumber, operand) = (3, bySequenceNumber(number))
        case .within(let low, let high): (operatorNumber, operand) = (4, bySequenceNumber(low, high))
        case .first: operatorNumber = 5
        case .last: operatorNumber = 6
        }
    }

    /// A response.
    public init(to request: Operation, _ result: Result) {
        (operation, operand) = (.response, Data([request.rawValue, result.rawValue]))
    }

    /// The response to ``Operation/count``.
    public init(count: UInt16) {
        operation = .countResponse
        operand.append(count)
    }

    /// The request to end the procedure that is under way.
    public static var abort: Self {
        var request = Self()
        request.operation = .abort
        return request
    }

    /// Operation 0.
    public init() { operation = Operation(rawValue: 0) }

    /// Of a request: which records.
    /// - Throws: The ``Result`` for the response.
    public func filter() throws(Invalid) -> Filter {
        let isNumbered = (2...4).contains(operatorNumber)
        guard operand.isEmpty != isNumbered else { throw Invalid(result: .invalidOperand) }
        guard !isNumbered || operand.first == 1 else { throw Invalid(result: .operandNotSupported) }
        var fields = FieldReader(bytes: operand.dropFirst())
        /// As many as the operator has, and no byte more.
        func numbers(_ count: Int) throws(Invalid) -> [UInt16] {
            let numbers = (0..<count).compactMap { _ in try? fields.uint16("operand") }
            guard numbers.count == count, fields.isAtEnd else { throw Invalid(result: .invalidOperand) }
            return numbers
        }
        switch operatorNumber {
        case 0: throw Invalid(result: .invalidOperator)
        case 1: return .all
        case 2: return .upTo(try numbers(1)[0])
        case 3: return .from(try numbers(1)[0])
        case 4:
            let numbers = try numbers(2)
            guard numbers[0] <= numbers[1] else { throw Invalid(result: .invalidOperand) }
            return .within(numbers[0], numbers[1])
        case 5: return .first
        case 6: return .last
        default: throw Invalid(result: .operatorNotSupported)
        }
    }

    /// Of ``abort``, which has neither operator nor operand.
    fileprivate func checkAbort() throws(Invalid) {
        guard operatorNumber == 0 else { throw Invalid(result: .invalidOperator) }
        guard operand.isEmpty else { throw Invalid(result: .invalidOperand) }
    }

    /// Of the response to ``Operation/count``: the number of records. Nil: another operation.
    public var count: UInt16? {
        guard operation == .countResponse else { return nil }
        return operand.reversed().reduce(0) { $0 << 8 | UInt16($1) }
    }

    /// Of another response: to what, and the result. Nil: another operation.
    public var response: (request: Operation, result: Result)? {
        guard operation == .response, let request = operand.first, let result = operand.last.flatMap(Result.init) else {
            return nil
        }
        return (Operation(rawValue: request), result)
    }

    /// What is wrong with a request. BluezKit addition.
    public struct Invalid: Error, Hashable {
        /// For the response.
        public let result: Result
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var number = operation.rawValue
        try fields.field("operation", &number)
        operation = Operation(rawValue: number)
        try fields.field("operator", &operatorNumber)
        guard operation == .response || operation == .countResponse else {
            fields.rest(&operand)
            return
        }
        var (first, second) = (operand.first ?? 0, operand.last ?? 0)
        try fields.field("operand", &first)
        try fields.field("operand", &second)
        if operation == .response, Result(rawValue: second) == nil {
            throw .reserved(field: "response value", value: Int(second))
        }
        operand = Data([first, second])
    }
}

/// The measurements of a device, and its answers to requests for them. BluezKit addition.
///
/// ```swift
/// meter.onWrite(of: RecordAccessControlPoint.self) { request in
///     let answer = store.answer(request)
///     for measurement in answer.records { queue.append(measurement) }   // sent as there is room, before the response
///     ...
///     return .success
/// }
/// ```
public struct RecordStore<Record> {
    private let sequenceNumber: (Record) -> UInt16
    /// Oldest first.
    public private(set) var records: [Record] = []

    /// An empty store.
    /// - Parameter sequenceNumber: That of a record, which grows.
    public init(sequenceNumber: @escaping (Record) -> UInt16) { self.sequenceNumber = sequenceNumber }

    /// Adds a record.
    public mutating func append(_ record: Record) { records.append(record) }

    /// Carries out a request.
    /// - Returns: The records to send, oldest first, and the response to indicate when they have been sent.
    public mutating func answer(
        _ request: RecordAccessControlPoint
    ) -> (records: [Record], response: RecordAccessControlPoint) {
        let operation = request.operation
        func respond(_ result: RecordAccessControlPoint.Result) -> (
            records: [Record], response: RecordAccessControlPoint
        ) { ([], RecordAccessControlPoint(to: operation, result)) }
        guard [.report, .delete, .count, .abort].contains(operation) else { return respond(.operationNotSupported) }
        do throws(RecordAccessControlPoint.Invalid) {
            if operation == .abort {
                try request.checkAbort()
                return respond(.success)
            }
            let filter = try request.filter()
            let found = records.indices.filter { matches($0, filter) }
            if operation == .count { return ([], RecordAccessControlPoint(count: UInt16(clamping: found.count))) }
            guard !found.isEmpty else { return respond(.noRecordsFound) }
            if operation == .report { return (found.map { records[$0] }, respond(.success).response) }
            for index in found.reversed() { records.remove(at: index) }
            return respond(.success)
        } catch {
            return respond(error.result)
        }
    }

    private func matches(_ index: Int, _ filter: RecordAccessControlPoint.Filter) -> Bool {
        let number = sequenceNumber(records[index])
        switch filter {
        case .all: return true
        case .upTo(let last): return number <= last
        case .from(let first): return number >= first
        case .within(let first, let last): return first <= number && number <= last
        case .first: return index == 0
        case .last: return index == records.count - 1
        }
    }
}
