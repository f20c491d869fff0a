import BluezDBus
import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

/// What the preserved state says of a link beside the app's own work.
@Suite struct LinkRecordTests {
    // It said neither, and both were lost: a lease with the session that it was made in, and which adapter had a bond
    // when two of them changed names.
    @Test("CN-7 R-27 the state says whether a link is ours, and which adapter BlueZ has told of the bond")
    func records() async throws {
        let (world, directory) = (try await SimulatedWorld(.calm), try TemporaryDirectory())
        let central = Central(world, options: directory.centralOptions)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        func record() throws -> Snapshot.Peripheral? {
            try Snapshot(fileContent: Data(contentsOf: URL(fileURLWithPath: directory.file("app"))))
                .peripherals[heart.identifier]
        }
        central.manager.connect(heart)
        #expect(try record()?.isOurs == nil)
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        #expect(try record()?.isOurs == true && record()?.adapterAddress == "00:B1:5E:00:00:01")
        central.manager.cancelPeripheralConnection(heart)
        try await central.next("the end") { if case .disconnected(heart, _, _) = $0 { true } else { nil } }

        let other = try await Peer.named(world.busAddress)
        try await other.call(
            MethodCall(
                destination: "org.bluez", path: "/org/bluez/hci0/dev_F0_F1_F2_00_00_01", interface: "org.bluez.Device1",
                member: "Connect"), deadline: .seconds(60))
        try await central.connect(heart)
        #expect(try record()?.isOurs == false)
        withExtendedLifetime(other) {}
    }
}
