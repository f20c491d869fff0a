import BluezDBus
import Foundation
import Testing

/// The forms of addresses that are in use.
@Suite struct BusAddressTests {
    private func expectBus(_ address: String) async throws {
        let peer = try await Peer.named(BusAddress(address))
        #expect(peer.connection.uniqueName?.hasPrefix(":") == true, "\(address)")
    }

    @Test(
        "a bus is reached by systemd's socket, dbus-launch's abstract socket, a random name or TCP",
        arguments: [
            "unix:path=DIR/bus", "unix:abstract=bluezkit-" + UUID().uuidString, "unix:tmpdir=DIR", "unix:dir=DIR",
            "tcp:host=127.0.0.1,port=0", "tcp:host=127.0.0.1,port=0,family=ipv4",
        ])
    func forms(_ listen: String) async throws {
        let bus = try ConfiguredBus(listen: [listen])
        let address = try #require(bus.addresses.first).rawValue
        #expect(address.contains(",guid="))
        try await expectBus(address)
        try await expectBus(address.replacing(#/,guid=.*/#, with: ""))
        withExtendedLifetime(bus) {}
    }

    @Test("of several addresses the first that works counts")
    func several() async throws {
        let bus = try ConfiguredBus(listen: ["unix:path=DIR/bus"])
        let address = try #require(bus.addresses.first).rawValue
        for dead in ["unix:path=/nonexistent/bus", "unix:abstract=bluezkit-unowned", "tcp:host=127.0.0.1,port=1"] {
            try await expectBus("\(dead);\(address)")
        }
        withExtendedLifetime(bus) {}
    }

    @Test("characters that an address cannot have are escaped")
    func escaped() async throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/a b,c;d=é"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        let escaped = path.utf8.map { byte in
            let character = Character(UnicodeScalar(byte))
            return byte < 0x80 && (character.isLetter || character.isNumber || "-_/.*".contains(character))
                ? String(character) : String(format: "%%%02x", byte)
        }
        let address = "unix:path=\(escaped.joined())/bus"
        let bus = try ConfiguredBus(listen: [address])
        try await expectBus(address)
        withExtendedLifetime(bus) {}
    }
}
