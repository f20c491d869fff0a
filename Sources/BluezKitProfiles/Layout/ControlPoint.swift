public import BluezKit
import Foundation

/// The operations of a ``ControlPoint``. BluezKit addition.
public protocol ControlPointOperation: RawRepresentable<UInt8>, Hashable, Sendable {
    /// How a server responds; 1 is success.
    associatedtype Result: EnumeratedValue = ControlPointResult
    /// The characteristic.
    static var controlPoint: CBUUID { get }
    /// The operation that is the response to another one.
    static var response: Self { get }
    /// Requests and responses can end with a checksum, the E2E-CRC.
    static var canBeSecured: Bool { get }
    /// Any number: a server answers what it does not know with "not supported", 2.
    init(rawValue: UInt8)
    /// The bytes of a request's parameter. A request with more or less cannot be read. Nil: any number of bytes.
    var parameterLength: Int? { get }
}

extension ControlPointOperation {
    /// No checksum.
    public static var canBeSecured: Bool { false }
    /// Any number of bytes.
    public var parameterLength: Int? { nil }
}

/// A request to a server, written with response; or the server's response, indicated. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "SC Control Point", "Cycling Power Control Point";
///   Fitness Machine Service 1.0, 4.16; User Data Service 1.0, 3.4.
public struct ControlPoint<Operation: ControlPointOperation>: StructuredValue, Hashable {
    /// That of the operations.
    public static var uuid: CBUUID { Operation.controlPoint }

    /// What is requested, or the response.
    public var operation: Operation
    /// Of a response: to what. Nil for a request.
    public private(set) var request: Operation?
    /// Of a response. Nil for a request, or a number that is not assigned.
    @Assigned public private(set) var result: Operation.Result?
    /// As the operation defines it, little-endian.
    public var parameter: Data
    /// It ends with a checksum, which was correct.
    public internal(set) var isSecured = false

    /// A request.
    public init(_ operation: Operation, parameter: Data = Data()) {
        (self.operation, self.parameter) = (operation, parameter)
        if operation == .response { (request, result) = (Operation(rawValue: 0), Operation.Result()) }
    }

    /// A response.
    public init(to request: Operation, _ result: Operation.Result, parameter: Data = Data()) {
        (operation, self.request, self.parameter) = (.response, request, parameter)
        self.result = result
    }

    /// Operation 0.
    public init() { self.init(Operation(rawValue: 0)) }

    /// Tells whether the server has done what was requested.
    /// - Throws: ``ControlPointRefusal`` if this is a response that says otherwise.
    public func checkSuccess() throws(ControlPointRefusal<Operation>) {
        if let request, $result != 1 { throw ControlPointRefusal(request: request, result: _result) }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var (number, asked) = (operation.rawValue, request?.rawValue ?? 0)
        try fields.field("operation", &number)
        operation = Operation(rawValue: number)
        if operation == .response {
            try fields.field("requested operation", &asked)
            try fields.field("response value", &_result)
            request = Operation(rawValue: asked)
        } else {
            (request, result) = (nil, nil)
        }
        guard fields.isReading else {
            fields.rest(&parameter)
            if Operation.canBeSecured { try fields.e2eCRC(&isSecured) }
            return
        }
        isSecured = false
        let length = operation == .response && Operation.canBeSecured ? 0 : operation.parameterLength
        // Only the length says whether there is a checksum.
        if Operation.canBeSecured, let length, fields.bytesLeft == length + 2 {
            parameter = try fields.bytes("parameter", count: length)
            return try fields.e2eCRC(&isSecured)
        }
        fields.rest(&parameter)
        guard operation != .response, let length else { return }
        if parameter.count < length { throw .truncated(field: "parameter") }
        if parameter.count > length { throw .trailing(bytes: parameter.count - length) }
    }
}

/// How most servers respond. BluezKit addition.
public enum ControlPointResult: UInt8, EnumeratedValue {
    /// The response value.
    case success = 1, notSupported, invalidParameter, failed
    /// Failed.
    public init() { self = .failed }
}

/// That a server has not done what it was asked for, which its response says. BluezKit addition.
public struct ControlPointRefusal<Operation: ControlPointOperation>: LocalizedError, Hashable {
    /// What was requested.
    public let request: Operation
    /// The reason; nil: a number that is not assigned.
    @Assigned public private(set) var result: Operation.Result?

    init(request: Operation, result: Assigned<Operation.Result>) { (self.request, _result) = (request, result) }

    /// One sentence, without a full stop.
    public var errorDescription: String? {
        let reason = result.map { "\($0)" } ?? "\($result ?? 0)"
        return "operation \(request.rawValue) was refused: \(reason)"
    }
}

/// The operations of a ``ControlPoint`` whose parameters have types. BluezKit addition.
public protocol CommandOperation: ControlPointOperation {
    /// A request with its parameter.
    associatedtype Command: ControlPointCommand where Command.Operation == Self
}

/// A request to a ``ControlPoint``, with its parameter. BluezKit addition.
public protocol ControlPointCommand: Hashable, Sendable {
    /// The operations of the control point.
    associatedtype Operation: ControlPointOperation
    /// What is requested.
    var operation: Operation { get }
    /// As transmitted.
    var parameter: Data { get }
    /// The command of an operation; nil if it has none, or if the parameter is not one of its values.
    init?(_ operation: Operation, parameter: Data)
}

extension ControlPoint where Operation: CommandOperation {
    /// A request.
    public init(command: Operation.Command) { self.init(command.operation, parameter: command.parameter) }

    /// What is requested; nil for responses, and for what is not known or whose parameter has a reserved value: a
    /// server responds with "not supported" or "invalid parameter".
    public var command: Operation.Command? {
        request == nil ? Operation.Command(operation, parameter: parameter) : nil
    }
}
