public import BluezKit

/// Nordic Semiconductor's UART service: bytes in both directions. BluezKit addition.
///
/// The server gets what centrals write with `onWrite(of: NordicUART.receive)`, and sends with
/// `send(_:of: NordicUART.transmit, by:)`. Bytes have no boundaries: a value is any part of the stream.
/// - SeeAlso: Nordic Semiconductor, nRF Connect SDK, "Nordic UART Service (NUS)".
public enum NordicUART: ServiceProfile {
    /// 6E400001-B5A3-F393-E0A9-E50E24DCCA9E.
    public static let uuid = CBUUID(string: "6E400001-B5A3-F393-E0A9-E50E24DCCA9E")
    /// What centrals write, with or without response.
    public static let receive = CBUUID(string: "6E400002-B5A3-F393-E0A9-E50E24DCCA9E")
    /// What is notified to centrals.
    public static let transmit = CBUUID(string: "6E400003-B5A3-F393-E0A9-E50E24DCCA9E")
    /// Both characteristics are mandatory.
    public static let characteristics = [
        ProfileCharacteristic(receive, [.write, .writeWithoutResponse]), ProfileCharacteristic(transmit, .notify),
    ]
}

/// The server side of ``NordicUART``. BluezKit addition.
public typealias NordicUARTService = ProfileService<NordicUART>
