import BluezKitSimulator
import BluezDBus
import Dispatch
import Testing

/// A thing with properties, exported for the tests.
private final class Thing {
    var color = "red"
    var size: UInt32? = 1
    var log: [UInt8] = []
    unowned var host: Host

    init(_ host: Host) { self.host = host }

    static let interface = ExportedInterface(
        "org.example.Thing1", of: Thing.self,
        properties: [
            .init("Color", "s", get: { .string($0.color) }) { thing, change in
                thing.color = change.value.stringValue ?? ""
                change.accept()
            },
            .init("Size", "u") { $0.size.map { .uint32($0) } },
            .init("Log", "ay", flushes: true) { .bytes($0.log) },
        ],
        methods: [
            .init("Paint", takes: [.init("color", "s")], gives: [.init("size", "u")]) { thing, call, server in
                var reader = call.reader
                thing.color = (try? reader.readString()) ?? ""
                thing.size = 7
                server.propertyChanged("Size", of: "org.example.Thing1", at: "/org/example/a")
                server.propertyChanged("Color", of: "org.example.Thing1", at: "/org/example/a")
                server.reply(to: call) { (writer) throws(BusError) in try writer.write(UInt32(7)) }
            }
        ])

    /// An interface that has no properties.
    static let plain = ExportedInterface("org.example.Plain1", of: Thing.self)
}

/// A process that exports things on a bus.
private final class Host: @unchecked Sendable {  // holds: all state is touched on `queue`
    let queue = DispatchQueue(label: "test.host")
    let bus: PrivateBus
    let connection: Connection
    let server: ObjectServer

    init() async throws {
        bus = try PrivateBus(policy: .open)
        let (queue, address) = (queue, bus.busAddress)
        connection = try queue.sync { try Connection(address: address, queue: queue) }
        let connection = connection
        server = queue.sync {
            let server = ObjectServer(connection: connection)
            server.addManager(at: "/")
            return server
        }
        try await withCheckedThrowingContinuation { continuation in
            queue.async { connection.requestName("org.example") { continuation.resume(with: $0) } }
        }
    }

    deinit {
        let (connection, server) = (connection, server)
        queue.sync {
            server.close()
            connection.close()
        }
    }

    func run<R>(_ body: (ObjectServer) -> R) -> R { queue.sync { body(server) } }
    func client() async throws -> BusClient { try await BusClient(bus.busAddress, service: "org.example") }
}

@Suite struct ObjectServerTests {
    let properties = "org.freedesktop.DBus.Properties"

    @Test("changes of one turn are one signal, in their order, and come before the reply that they cause")
    func mergesChanges() async throws {
        let host = try await Host()
        let thing = Thing(host)
        host.run { $0.add(Thing.interface, to: "/org/example/a", owner: thing) }
        let client = try await host.client()
        try await client.call("/org/example/a", "org.example.Thing1", "Paint", .string("blue"))
        #expect(client.lines == ["/org/example/a: Size=7 Color=blue", "Paint returns"])
        client.forget()
        host.run { server in
            for size: UInt32 in 1...5 {
                thing.size = size
                server.propertyChanged("Size", of: "org.example.Thing1", at: "/org/example/a")
            }
            thing.size = nil
            server.propertyChanged("Color", of: "org.example.Thing1", at: "/org/example/a")
        }
        #expect(await client.hears("/org/example/a: Color=blue Size gone"))
    }

    @Test("a property that flushes is signalled at every change")
    func flushes() async throws {
        let host = try await Host()
        let thing = Thing(host)
        host.run { $0.add(Thing.interface, to: "/org/example/a", owner: thing) }
        let client = try await host.client()
        host.run { server in
            for byte: UInt8 in [1, 1, 2] {
                thing.log = [byte]
                server.propertyChanged("Log", of: "org.example.Thing1", at: "/org/example/a")
            }
        }
        #expect(await client.hears("/org/example/a: Log=02"))
        #expect(client.lines == ["/org/example/a: Log=01", "/org/example/a: Log=01", "/org/example/a: Log=02"])
    }

    @Test("parents are announced before children; an object that is added and removed in one turn is never announced")
    func announcing() async throws {
        let host = try await Host()
        let thing = Thing(host)
        let client = try await host.client()
        host.run { server in
            server.add(Thing.plain, to: "/org/example/b/deep", owner: thing)
            server.add(Thing.plain, to: "/org/example/c", owner: thing)
            server.add(Thing.interface, to: "/org/example/b", owner: thing)
            server.propertyChanged("Size", of: "org.example.Thing1", at: "/org/example/b")
            server.add(Thing.plain, to: "/org/example/b", owner: thing)
            server.remove("/org/example/c")
        }
        #expect(await client.hears("+ /org/example/b/deep Plain1"))
        #expect(client.lines == ["+ /org/example/b Thing1 Plain1", "+ /org/example/b/deep Plain1"])
        client.forget()
        host.run { server in
            server.remove("org.example.Plain1", from: "/org/example/b")
            server.remove("/org/example/b/deep")
        }
        #expect(await client.hears("- /org/example/b Plain1"))
        #expect(client.lines == ["- /org/example/b/deep Plain1", "- /org/example/b Plain1"])
    }

    @Test("objects are listed with the standard interfaces, empty, where gdbus puts them")
    func listing() async throws {
        let host = try await Host()
        let thing = Thing(host)
        host.run { server in
            server.add(Thing.interface, to: "/org/example/a", owner: thing)
            server.add(Thing.plain, to: "/org/example/a", owner: thing)
            server.add(Thing.plain, to: "/org/example/a/b", owner: thing)
        }
        let client = try await host.client()
        let reply = try await client.call("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        let objects = try #require(reply.first?.entriesByPath)
        #expect(objects.map(\.0) == ["/org/example/a", "/org/example/a/b"])
        #expect(
            objects[0].1.entries?.map(\.0) == [
                "org.freedesktop.DBus.Introspectable", "org.example.Thing1", "org.freedesktop.DBus.Properties",
                "org.example.Plain1",
            ])
        #expect(
            objects[1].1.entries?.map(\.0) == ["org.freedesktop.DBus.Introspectable", "org.example.Plain1"])
        #expect(objects[0].1.dictionaryValue?["org.example.Thing1"]?.dictionaryValue?["Size"] == .uint32(1))
    }

    @Test("introspection lists children, also of intermediate nodes")
    func introspection() async throws {
        let host = try await Host()
        let thing = Thing(host)
        host.run { $0.add(Thing.interface, to: "/org/example/a/b", owner: thing) }
        let client = try await host.client()
        func xml(_ path: String) async throws -> String {
            try await client.call(path, "org.freedesktop.DBus.Introspectable", "Introspect").first?.stringValue ?? ""
        }
        #expect(try await xml("/org").contains("<node name=\"example\"/>"))
        #expect(try await xml("/").contains("GetManagedObjects"))
        let own = try await xml("/org/example/a/b")
        #expect(own.contains("<property name=\"Color\" type=\"s\" access=\"readwrite\">"))
        #expect(own.contains("<method name=\"Paint\"><arg name=\"color\" type=\"s\" direction=\"in\"/>"))
        host.run { $0.remove("/org/example/a/b") }
        await #expect(throws: BusError.self) { try await xml("/org/example") }
    }

    @Test(
        "wrong calls are refused with the names that gdbus and libdbus use",
        arguments: [
            ("/org/example/a", "Get", [.string("org.example.None1"), .string("X")], "InvalidArgs"),
            ("/org/example/a", "Get", [.string("org.example.Thing1"), .string("X")], "InvalidArgs"),
            ("/org/example/a", "GetAll", [.string("org.example.None1")], "InvalidArgs"),
            (
                "/org/example/a", "Set", [.string("org.example.Thing1"), .string("X"), .variant(.bool(true))],
                "UnknownProperty"
            ),
            (
                "/org/example/a", "Set", [.string("org.example.Thing1"), .string("Size"), .variant(.uint32(1))],
                "PropertyReadOnly"
            ),
            (
                "/org/example/a", "Set", [.string("org.example.Thing1"), .string("Color"), .variant(.bool(true))],
                "InvalidSignature"
            ),
            ("/org/example/a", "Get", [.string("org.example.Thing1")], "UnknownMethod"),
            ("/org/example/z", "GetAll", [.string("org.example.Thing1")], "UnknownObject"),
        ] as [(String, String, [Value], String)])
    func refusals(path: String, member: String, arguments: [Value], error: String) async throws {
        let host = try await Host()
        let thing = Thing(host)
        host.run { $0.add(Thing.interface, to: "/org/example/a", owner: thing) }
        let client = try await host.client()
        switch arguments.count {
        case 1: _ = try? await client.call(path, properties, member, arguments[0])
        case 2: _ = try? await client.call(path, properties, member, arguments[0], arguments[1])
        default: _ = try? await client.call(path, properties, member, arguments[0], arguments[1], arguments[2])
        }
        #expect(client.lines.last?.hasPrefix("\(member) fails org.freedesktop.DBus.Error.\(error) ") == true)
    }
}

extension Value {
    /// The entries of a dictionary by path, in order.
    fileprivate var entriesByPath: [(String, Value)]? { entries }
}
