public import BluezKit
import Foundation

/// The control point of a device with several users, 2A9F. BluezKit addition.
///
/// ```swift
/// peripheral.writeValue(
///     UserControlPoint(command: .registerNewUser(consentCode: 1234)).data, for: controlPoint, type: .withResponse)
///
/// let response = try UserControlPoint(characteristic.value)
/// try response.checkSuccess()
/// user = response.user
/// ```
/// - SeeAlso: Bluetooth SIG, User Data Service 1.0, 3.4.
public typealias UserControlPoint = ControlPoint<UserOperation>

/// An operation of the control point of users, 2A9F. ``UserCommand`` has them with their parameters. BluezKit addition.
public struct UserOperation: CommandOperation {
    /// How a device responds.
    public typealias Result = UserResult
    /// A request with its parameter.
    public typealias Command = UserCommand
    /// 2A9F.
    public static let controlPoint = CBUUID(string: "2A9F")
    /// The number.
    public let rawValue: UInt8
    /// An operation from its number.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// ``UserCommand/registerNewUser(consentCode:)``; 2 bytes.
    public static let registerNewUser = Self(rawValue: 0x01)
    /// ``UserCommand/consent(user:code:)``; 3 bytes.
    public static let consent = Self(rawValue: 0x02)
    /// ``UserCommand/deleteUserData``
    public static let deleteUserData = Self(rawValue: 0x03)
    /// ``UserCommand/listAllUsers``
    public static let listAllUsers = Self(rawValue: 0x04)
    /// ``UserCommand/deleteUser(_:)``; 1 byte.
    public static let deleteUser = Self(rawValue: 0x05)
    /// The response.
    public static let response = Self(rawValue: 0x20)

    /// That of the operation.
    public var parameterLength: Int? {
        switch self {
        case .registerNewUser: 2
        case .consent: 3
        case .deleteUser: 1
        case .deleteUserData, .listAllUsers: 0
        default: nil
        }
    }
}

/// How a device with several users responds. BluezKit addition.
public enum UserResult: UInt8, EnumeratedValue {
    /// The response value.
    case success = 1, notSupported, invalidParameter, failed, userNotAuthorized
    /// Failed.
    public init() { self = .failed }
}

/// A request to a device with several users. BluezKit addition.
public enum UserCommand: ControlPointCommand {
    /// Registers a user. The response has the number of the user: ``ControlPoint/user``.
    /// - Parameter consentCode: 0 to 9999, which ``consent(user:code:)`` requires from then on.
    case registerNewUser(consentCode: UInt16)
    /// Selects the user whose data are read and written.
    case consent(user: UInt8, code: UInt16)
    /// Deletes the data of the selected user.
    case deleteUserData
    /// Asks for the users. Since User Data Service 1.1.
    case listAllUsers
    /// Deletes a user; 255: all. Since User Data Service 1.1.
    case deleteUser(UInt8)

    /// What is requested.
    public var operation: UserOperation { coded.operation }

    /// As transmitted.
    public var parameter: Data { coded.parameter }

    private var coded: (operation: UserOperation, parameter: Data) {
        switch self {
        case .registerNewUser(let code): (.registerNewUser, code.encoded)
        case .consent(let user, let code): (.consent, user.encoded + code.encoded)
        case .deleteUserData: (.deleteUserData, Data())
        case .listAllUsers: (.listAllUsers, Data())
        case .deleteUser(let user): (.deleteUser, user.encoded)
        }
    }

    /// The command of an operation; nil if it has none, or if the parameter is too short.
    public init?(_ operation: UserOperation, parameter: Data) {
        let (first, code) = (parameter.first, UInt16(decoding: parameter.dropFirst(operation == .consent ? 1 : 0)))
        switch (operation, first, code) {
        case (.registerNewUser, _, let code?): self = .registerNewUser(consentCode: code)
        case (.consent, let user?, let code?): self = .consent(user: user, code: code)
        case (.deleteUserData, _, _): self = .deleteUserData
        case (.listAllUsers, _, _): self = .listAllUsers
        case (.deleteUser, let user?, _): self = .deleteUser(user)
        default: return nil
        }
    }
}

extension ControlPoint where Operation == UserOperation {
    /// The response to ``UserCommand/registerNewUser(consentCode:)`` or ``UserCommand/deleteUser(_:)``.
    /// - Parameters:
    ///   - request: The operation.
    ///   - user: The number of the user.
    public init(to request: UserOperation, user: UInt8) {
        self.init(to: request, .success, parameter: user.encoded)
    }

    /// Of the response to ``UserCommand/registerNewUser(consentCode:)`` or ``UserCommand/deleteUser(_:)``: the number
    /// of the user. Nil: another response, or a request.
    public var user: UInt8? {
        [.registerNewUser, .deleteUser].contains(request) && result == .success ? parameter.first : nil
    }
}
