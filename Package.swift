// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "BluezKit",
    // For CoreBluetoothAsync, the only one of the libraries that is not for Linux alone.
    platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
    products: [
        // Apps written for Apple's CoreBluetooth depend on `CoreBluetooth` and need no source change.
        // It is a separate product: a package that does not use it keeps `canImport(CoreBluetooth)` false.
        .library(name: "CoreBluetooth", targets: ["CoreBluetooth"]),
        .library(name: "BluezKit", targets: ["BluezKit"]),
        // On Apple's systems this one works as well, over their CoreBluetooth.
        .library(name: "CoreBluetoothAsync", targets: ["CoreBluetoothAsync"]),
        .library(name: "BluezKitProfiles", targets: ["BluezKitProfiles"]),
        .library(name: "BluezKitGLib", targets: ["BluezKitGLib"]),
        .library(name: "BluezKitSimulator", targets: ["BluezKitSimulator"]),
        .executable(name: "bluez-demo", targets: ["bluez-demo"]),
        .executable(name: "bluezkit-keeper", targets: ["bluezkit-keeper"]),
    ],
    targets: [
        // Modules of a whole graph of packages share one name space, so none is called just `DBus`.
        .systemLibrary(
            name: "CBluezDBusSystem", path: "Sources/CDBusSystem", pkgConfig: "dbus-1",
            providers: [.apt(["libdbus-1-dev"])]),
        .target(name: "CBluezDBus", dependencies: ["CBluezDBusSystem"], path: "Sources/CDBus"),
        .target(name: "BluezDBus", dependencies: ["CBluezDBus"]),
        .target(name: "CCoreBluetooth"),
        .target(name: "CBluezL2CAP", path: "Sources/CL2CAP"),
        .target(name: "BluezKitRestore"),
        .target(name: "BluezKit", dependencies: ["BluezDBus", "BluezKitRestore", "CBluezL2CAP", "CCoreBluetooth"]),
        .target(name: "CoreBluetooth", dependencies: ["BluezKit"]),
        .target(
            name: "CoreBluetoothAsync",
            dependencies: [.target(name: "CoreBluetooth", condition: .when(platforms: [.linux]))]),
        .target(name: "BluezKitProfiles", dependencies: ["BluezKit"]),
        .systemLibrary(
            name: "CBluezGLib", path: "Sources/CGLibSystem", pkgConfig: "glib-2.0",
            providers: [.apt(["libglib2.0-dev"])]),
        .target(name: "BluezKitGLib", dependencies: ["BluezKit", "CBluezGLib"]),
        .target(name: "BluezKitSimulator", dependencies: ["BluezDBus"]),
        .executableTarget(
            name: "bluez-demo", dependencies: ["BluezKit", "BluezKitProfiles", "BluezKitSimulator", "BluezDBus"]),
        .executableTarget(name: "bluezkit-keeper", dependencies: ["BluezKit", "BluezDBus"]),
        .testTarget(
            name: "BluezKitTests",
            dependencies: [
                "CoreBluetooth", "CoreBluetoothAsync", "BluezKit", "BluezKitProfiles", "BluezKitRestore",
                "BluezKitSimulator", "BluezKitGLib", "BluezDBus", "CBluezDBus", "CBluezL2CAP", "bluez-demo",
            ]),
        // Typical app code, in both language modes: one folder is a link to the other. It is compiled, not run.
        .testTarget(
            name: "PortingSwift5", dependencies: ["CoreBluetooth", "BluezKitProfiles"], path: "Tests/Porting/Swift5",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        .testTarget(
            name: "PortingSwift6", dependencies: ["CoreBluetooth", "BluezKitProfiles"], path: "Tests/Porting/Swift6"),
    ],
    swiftLanguageModes: [.v6]
)

// Programs for tests and measurements. Users of the package do not need them, but `swift build` builds every executable of
// a root package, so they exist only if the scripts request them (scripts/lib.sh).
if Context.environment["BLUEZKIT_TOOLS"] != nil {
    package.targets += [
        // The app that the restoration tests kill and restart.
        .executableTarget(
            name: "restoration-probe", dependencies: ["CoreBluetooth", "CoreBluetoothAsync", "BluezKit", "BluezDBus"],
            path: "Tests/Probe",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        // A program with a GLib main loop, and what it does there.
        .executableTarget(
            name: "glib-probe", dependencies: ["BluezKit", "BluezKitGLib", "CBluezGLib"], path: "Tests/GLibProbe",
            swiftSettings: [.swiftLanguageMode(.v5)]),
        // A simulated gateway for a week: two apps and their environment.
        .executableTarget(
            name: "bluezkit-soak", dependencies: ["BluezKit", "BluezKitSimulator", "BluezDBus"], path: "Tests/Soak"),
        // Kills a program at its N-th system call.
        .executableTarget(name: "kill-at", path: "Tests/KillAt"),
        // Makes a program see its environment as a set-user-ID program does.
        .target(name: "PrivilegedEnvironment", path: "Tests/PrivilegedEnvironment"),
        // The app that the benchmarks measure.
        .executableTarget(
            name: "bluezkit-bench", dependencies: ["BluezKit", "BluezKitGLib", "CBluezGLib"],
            path: "Benchmarks/bluezkit-bench"),
    ]
    package.products.append(
        .library(name: "PrivilegedEnvironment", type: .dynamic, targets: ["PrivilegedEnvironment"]))
    // The examples, so that their tests build nothing twice; they are a package of their own for those who read them.
    let others: [String: [Target.Dependency]] = [
        "thermometer-log": ["CSQLite"], "gateway": ["BluezKitProfiles", "CMosquitto"],
    ]
    for (program, folder) in [
        "scanner": "Scanner", "beacon-watch": "BeaconWatch", "thermometer-log": "ThermometerLog",
        "uart-terminal": "UARTTerminal", "thermostat": "Thermostat", "gateway": "Gateway", "restoration": "Restoration",
    ] {
        package.targets.append(
            .executableTarget(
                name: program, dependencies: ["CoreBluetooth", "CoreBluetoothAsync"] + (others[program] ?? []),
                path: "Examples/\(folder)"))
    }
    package.targets += [
        .systemLibrary(
            name: "CSQLite", path: "Examples/CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(
            name: "CMosquitto", path: "Examples/CMosquitto", pkgConfig: "libmosquitto",
            providers: [.apt(["libmosquitto-dev"])]),
        .testTarget(
            name: "ExamplesTests", dependencies: ["BluezKitSimulator", "CSQLite", "CMosquitto"],
            path: "Examples/Tests"),
    ]
}

// `make demo` builds with what the demo needs: a machine without GLib has nothing to warn about.
if Context.environment["BLUEZKIT_DEMO"] != nil {
    package.products.removeAll { $0.name == "BluezKitGLib" }
    package.targets.removeAll { $0.type == .test || ["BluezKitGLib", "CBluezGLib"].contains($0.name) }
}

// Needs coverage instrumentation, libFuzzer and internal declarations, so only `scripts/fuzz` builds it.
if Context.environment["BLUEZKIT_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "bluezkit-fuzz",
            dependencies: [
                "BluezKit", "BluezKitProfiles", "BluezKitRestore", "BluezKitSimulator", "CBluezDBus", "BluezDBus",
            ],
            path: "Tests/Fuzz", exclude: ["Corpus"]))
}

// What the next language mode has, for everything but apps' code, which is to compile as it stands.
for target in package.targets where target.type != .system && !target.name.hasPrefix("Porting") {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("InternalImportsByDefault"),
            .enableUpcomingFeature("MemberImportVisibility"),
        ]
}
